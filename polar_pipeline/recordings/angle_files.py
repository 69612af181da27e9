"""Files that are frames: each file, or four files that hold the images behind polarizers at four angles.

Four angle images are given by a pattern, such as `scene_{000,045,090,135}.png` or `{scene}_{angle}.tif`. Without a
pattern, they are files whose names, or the names of whose folders, differ only in the angle.
"""

from __future__ import annotations

import re
from collections import Counter
from glob import escape, glob, has_magic
from itertools import combinations, takewhile
from pathlib import Path
from typing import Dict, Iterator, List, Match, NamedTuple, Optional, Sequence, Set, Tuple

from polar_pipeline._util.paths import is_hidden, natural_order
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.sensor.mosaic import ANGLES

#: Parts of a pattern: alternatives, a named part, or wildcards of the shell.
_PARTS = re.compile(r"\{([^{}/]*,[^{}]*)\}|\{(\w+)\}|(\*\*/|\*|\?|\[!?\]?[^\]/]*\])")
#: A number of degrees, which can have a sign and decimals.
_DEGREES = re.compile("[+\u2212-]?[0-9]+(?:\\.[0-9]+)?")
#: The same within a name. Directly after a letter, a digit or an underscore, a minus is a hyphen and not a sign.
_DEGREES_WITHIN = re.compile(r"(?:(?<![\w.])[+\u2212-])?(?<![0-9.])[0-9]+(?:\.[0-9]+)?(?![0-9])")
#: The part of a number at the end of what names have in common, and at the beginning.
_NUMBER_END, _NUMBER_BEGIN = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?)?$"), re.compile(r"(?:[0-9]*(?:\.[0-9]+)?)?")
#: A number in a name that can be an angle in degrees.
_NUMBER = re.compile(r"(?<![0-9.])(0*(?:0|45|90|135))(?![0-9.]*[0-9])")
#: What is left around the angle in a name, and does not belong to the name of the frame.
_JOINTS = re.compile(r"(?i)(?:[_\-. ]*(?:angle|pol|deg|degrees|i|p|d))?[_\-. ]*$|^[_\-. ]+")


#: Suffixes of files with several arrays, of arrays, and of video.
ARCHIVES = (".npz", ".mat")
ARRAYS = (".npy", *ARCHIVES)
VIDEOS = (".mkv", ".avi", ".mov", ".mp4")
#: Suffixes of the files that hold frames without times.
SUFFIXES = (".png", ".tif", ".tiff", ".pgm", ".bmp", ".jpg", ".jpeg", *ARRAYS, *VIDEOS)
#: Suffixes of files without a header, whose format the user states.
RAW = (".raw", ".bin", ".dat")
#: Files that can be read, for errors.
EXPECTED = f".mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"


#: Places of a number in a path where angles are looked for, at most: the last ones.
_MAX_PLACES = 8
#: The unit behind an angle.
_BEHIND = re.compile(r"(?i)^[_\-. ]*(?:degrees|degree|deg|d)?(?![a-z])")


class FrameFiles(NamedTuple):
    """The files of a frame: one, or four in the order of `ANGLES`."""

    name: str
    files: Tuple[Path, ...]


def pictures_in(folder: Path, suffixes: Tuple[str, ...] = SUFFIXES) -> List[Path]:
    """List the files with frames in a folder in the natural order of their names, without hidden files."""
    paths = (path for path in folder.iterdir() if path.suffix.lower() in suffixes and not is_hidden(path))
    return sorted(paths, key=natural_order)


def frame_files(path: Path, stated: Stated) -> Tuple[List[FrameFiles], Dict[Path, bool]]:
    """List the frames of a picture, a folder or a pattern; and the files that can be angle images by their names.

    Returns:
        The frames; and for each such file whether the numbers in the names are angles, and do not only count.

    Raises:
        SourceError: There are none, or it is not clear which files are a frame.
    """
    if str(path) == "-":
        if stated.raw:
            raise SourceError("- is a picture from the standard input; pixels without a header are read from files")
        return [FrameFiles("stdin", (path,))], {}
    suffixes = RAW if stated.raw else SUFFIXES
    singly = stated.content in ("mosaics", "tiles", "stokes") or bool(stated.raw)
    folders: List[Path] = []
    names: Dict[Path, str] = {}  # of files that are frames, if they are not those of the files
    if is_pattern(str(path)):
        frames = files_of_pattern(str(path), () if stated.raw else SUFFIXES, bool(stated.order))
        if len(frames[0].files) > 1 and not singly:
            return frames, {}
        files = [file for frame in frames for file in frame.files]
        names = {frame.files[0]: frame.name for frame in frames if len(frame.files) == 1}
    elif path.is_dir():
        files, folders = pictures_in(path, suffixes), [] if singly else _angle_folders(path)
        if files and folders:
            words = ",".join(printable(folder.name) for folder in folders)
            raise SourceError(
                f"{path} holds pictures and the folders {words}, which are angles by their names: name these by a "
                f"pattern such as {quoted(f'{path}/{{{words}}}/*')}, or say --content mosaics"
            )
        files = files or [file for folder in folders for file in pictures_in(folder, suffixes)]
    else:
        if not stated.raw and path.suffix.lower() not in (*SUFFIXES, *RAW):
            raise SourceError(f"{path} holds neither a recording nor pictures; expected {EXPECTED}")
        if not singly:
            _check_is_whole(path)
        return [FrameFiles(path.stem, (path,))], {}
    if not files:
        raise SourceError(f"{path} holds neither a recording nor pictures; expected {EXPECTED}{_below(path)}")
    if stated.raw and stated.content == "auto" and angle_groups(files, takes_parts=True)[0]:
        raise SourceError(
            f"{path} has four angle images by its names, which are not read from files without a header: save them as "
            "TIFF or NPY, or say --content mosaics if they are mosaics"
        )
    groups: List[FrameFiles] = []
    named: Dict[Path, bool] = {}
    if not singly:
        groups = _same_names(folders) if folders else _signed_angles(files)
        groups, named = (groups, dict.fromkeys(files, True)) if groups else angle_groups(files)
        if len(files) == len(ANGLES):
            named = {**dict.fromkeys(files, False), **named}
    grouped = Counter(file for group in groups for file in group.files)
    unclear = next((file for file in files if grouped[file] != 1), None)
    if unclear is not None and (groups or folders):
        pattern = _pattern_of(groups[0]) if groups else f"{path}/{{angle}}/{{frame}}.png"
        raise SourceError(
            f"{path} has four angle images by its names, and it is not clear what {printable(unclear.name)} is: name "
            f"the angle images by a pattern such as {quoted(pattern)}, or say --content mosaics"
        )
    return groups or [FrameFiles(names.get(file, file.stem), (file,)) for file in files], named


def _same_names(folders: Sequence[Path]) -> List[FrameFiles]:
    """Return the frames of four folders of angles whose files have the same names; [] for others."""
    rows = [pictures_in(folder) for folder in folders]
    is_same = len({tuple(file.name for file in row) for row in rows}) == 1
    return [FrameFiles(files[0].stem, files) for files in zip(*rows)] if is_same else []


def _signed_angles(files: Sequence[Path]) -> List[FrameFiles]:
    """Return the frame of four files whose names differ in their angles alone, as -45 for 135; [] for others."""
    in_order = tuple(files[place] for place in places_of_angles([file.name for file in files]))
    return [FrameFiles(_common_name(in_order), in_order)] if in_order else []


def _below(path: Path) -> str:
    """Return what an error adds if there are pictures in the folders of a folder."""
    folders = [folder for folder in path.iterdir() if folder.is_dir() and not is_hidden(folder)]
    if not any(map(pictures_in, folders)):
        return ""
    return (
        f". Pictures in its folders are named by a pattern such as {quoted(f'{path}/*/*.png')}, or "
        f"{quoted(f'{path}/{{scene}}/{{angle}}.png')} for four angle images"
    )


def _check_is_whole(path: Path) -> None:
    """Refuse a file that is one of four angle images by its name."""
    if not any(_has_siblings(path, number) for number in re.finditer("[0-9]+", path.name)):
        return  # without a look at all files of the folder
    groups, _ = angle_groups(pictures_in(path.parent, (path.suffix.lower(),)), takes_parts=True)
    group = next((row for row in groups if path in row.files), None)
    if group is not None:
        listed = ", ".join(printable(file.name) for file in group.files)
        raise SourceError(
            f"{path} is one of four angle images by its name, {listed}: name the folder or a pattern such as "
            f"{quoted(_pattern_of(group))}, or say --content mosaics"
        )


def _has_siblings(path: Path, number: Match[str]) -> bool:
    """Return whether there are files with each angle in the place of a number in a file's name."""
    names = [
        [f"{path.name[: number.start()]}{angle:0{width}d}{path.name[number.end() :]}" for angle in ANGLES]
        for width in {1, len(number.group())}
    ]
    return any(all(path.with_name(name).exists() for name in row) for row in names)


def _pattern_of(group: FrameFiles) -> str:
    """Return a pattern of the names of a group: the angles in braces, and what is before and behind them."""
    texts = list(map(str, group.files))
    before, behind = _around(texts)
    words = ",".join(text[len(before) : len(text) - len(behind)] for text in texts)
    return f"{before}{{{words}}}{behind}"


def _around(texts: Sequence[str]) -> Tuple[str, str]:
    """Return what texts have in common at their beginnings and ends."""
    starts = takewhile(lambda column: len(set(column)) == 1, zip(*texts))
    before = "".join(column[0] for column in starts)
    ends = takewhile(lambda column: len(set(column)) == 1, zip(*(text[len(before) :][::-1] for text in texts)))
    return before, "".join(column[0] for column in ends)[::-1]


def is_pattern(text: str) -> bool:
    """Return whether a source is a pattern instead of a path: one with `{...}` or wildcards that does not exist."""
    return (has_magic(text) or _PARTS.search(text) is not None) and not Path(text).exists()


def files_of_pattern(text: str, suffixes: Tuple[str, ...], is_ordered: bool = False) -> List[FrameFiles]:
    """Find the files of a pattern in natural order.

    Args:
        text: A path with wildcards (`*`, `?`, `**/`) and, for four angle images, one set of four alternatives
            (`{000,045,090,135}`) or `{angle}`; other names in braces (`{scene}`) stand for any text. Alternatives
            that are not angles have the order of angles.
        suffixes: Those of the files; () for all.
        is_ordered: Whether the user states the angles of the alternatives, whatever numbers are in them.

    Raises:
        SourceError: There are no such files; a frame lacks one of the four angles, or has several files of one; or the
            alternatives are other angles than 0, 45, 90 and 135.
    """
    alternatives = [match.group(1).split(",") for match in _PARTS.finditer(text) if match.group(1)]
    has_angles = bool(alternatives) or "{angle}" in text
    words = alternatives[0] if alternatives else []
    is_named = any(match.group(2) for match in _PARTS.finditer(text))
    if any(len(row) != len(ANGLES) or row != words for row in alternatives) or len(set(words)) < len(words):
        raise SourceError(
            f"{printable(text)} must have the same four alternatives in all braces, in the order of angles"
        )
    angles = _angles_of(words, is_ordered)
    regex, wild, end, groups = "", "", 0, 0
    for match in _PARTS.finditer(text):
        fixed = text[end : match.start()]
        regex, wild, end = regex + re.escape(fixed), wild + escape(fixed), match.end()
        listed, name, wildcard = match.groups()
        if listed or name == "angle":
            options = "|".join(map(re.escape, words)) if listed else "0*(?:0|45|90|135)"
            regex += "(?P=angle)" if "(?P<angle>" in regex else f"(?P<angle>{options})"
            wild += "*"
        else:
            groups += 1
            any_text = {"**/": "(?:.*/)?", "?": "[^/]"}.get(wildcard or "", "[^/]*?" if name else "[^/]*")
            if wildcard and wildcard[0] == "[":
                any_text = wildcard.replace("[!", "[^", 1)
            regex, wild = f"{regex}(?P<g{groups}>{any_text})", wild + (wildcard or "*")
    regex, wild = regex + re.escape(text[end:]), wild + escape(text[end:])
    frames: Dict[Tuple[str, ...], Dict[int, List[Path]]] = {}
    single: List[FrameFiles] = []
    for path in sorted(map(Path, glob(wild, recursive=True)), key=natural_order):  # noqa: PTH207 - of any root
        parts = re.fullmatch(regex, str(path))
        if parts is None or is_hidden(path) or (suffixes and path.suffix.lower() not in suffixes):
            continue
        key = tuple(parts.group(f"g{k}") or "" for k in range(1, groups + 1))
        if has_angles:
            word = parts.group("angle")
            angle = angles[word] if words else int(word)
            frames.setdefault(key, {}).setdefault(angle, []).append(path)
        else:
            single.append(FrameFiles(_name_of(key, text) if is_named else path.stem, (path,)))
    if not frames and not single:
        raise SourceError(f"no picture, array or video matches {quoted(text)}; recordings are named without a pattern")
    return single or [_complete(frame, _name_of(key, text), text) for key, frame in frames.items()]


def _angles_of(words: Sequence[str], is_ordered: bool) -> Dict[str, int]:
    """Return the angle of each of four parts of names: by the number in it, else in the order of `ANGLES`.

    Raises:
        SourceError: The numbers are other angles.
    """
    listed = dict(zip(words, ANGLES))
    numbers = numbers_in(words)
    if is_ordered or not words:
        return listed
    if numbers is None:
        matches = [_NUMBER.search(word) for word in words]
        numbers = [float(match.group(1)) for match in matches if match]
    degrees = [number % 180 for number in numbers]
    if sorted(degrees) == list(ANGLES):
        return dict(zip(words, map(int, degrees)))
    if len(numbers) == len(words) and _are_steps(numbers):
        raise SourceError(
            f"{','.join(map(printable, words))} must be 0, 45, 90 and 135 degrees: say which angles they are, in their "
            "order, by --angle-order"
        )
    return listed


def _are_steps(numbers: Sequence[float]) -> bool:
    """Return whether numbers are steps of 15 or 22.5 degrees, as those of a polarizer, and do not count."""
    is_turn = all(-180 <= number <= 360 for number in numbers)
    return is_turn and any(all(number % step == 0 for number in numbers) for step in (15, 22.5))


def numbers_in(names: Sequence[str]) -> Optional[List[float]]:
    """Return the numbers by which names differ, in degrees; None if they differ by anything else, or not at all.

    A minus in front of some of the numbers is a sign; one in front of all belongs to the name.
    """
    if len(set(names)) < 2:
        return None
    before, behind = _around(names)
    # a number may begin in what is before, and end in what is behind
    begin, end = len(_NUMBER_END.sub("", before, 1)), len(_NUMBER_BEGIN.sub("", behind, 1))
    words = [name[begin : len(name) - end] for name in names]
    if not all(map(_DEGREES.fullmatch, words)):
        return None
    return [float(word.replace("\u2212", "-")) for word in words]


def places_of_angles(names: Sequence[str]) -> List[int]:
    """Return the place of each of the four angles among four names that differ in them alone; [] for other names."""
    degrees = [number % 180 for number in numbers_in(names) or ()]
    return [degrees.index(angle) for angle in ANGLES] if sorted(degrees) == list(ANGLES) else []


def angles_of_names(names: Sequence[str]) -> Tuple[float, ...]:
    """Return the angles of polarizers that names of planes state; () for names without angles, or that only count.

    Raises:
        SourceError: Names have angles, and it is not clear which one is meant.
    """
    numbers = numbers_in(names)
    if numbers is not None:
        return tuple(number % 180 for number in numbers) if _are_steps(numbers) else ()
    rows = [[float(word.replace("\u2212", "-")) % 180 for word in _DEGREES_WITHIN.findall(name)] for name in names]
    rows = [[number for number in row if number in ANGLES] for row in rows]
    if len(names) % len(ANGLES) or {number for row in rows for number in row} != set(ANGLES) or not all(rows):
        return ()
    if all(len(row) == 1 for row in rows):
        return tuple(row[0] for row in rows)
    listed = ", ".join(map(printable, names[: len(ANGLES)]))
    raise SourceError(f"it is not clear which angles the names {listed} of its planes state: save each as a file")


def _complete(frame: Dict[int, List[Path]], name: str, what: str) -> FrameFiles:
    """Return the four files of a frame, by their angles.

    Raises:
        SourceError: One is missing, or there are several of one angle.
    """
    for angle in ANGLES:
        if len(frame.get(angle, ())) != 1:
            listed = ", ".join(printable(path.name) for paths in frame.values() for path in paths)
            raise SourceError(
                f"{printable(what)}: {listed} have angles of a frame in their names, with "
                f"{len(frame.get(angle, ())) or 'no'} images at {angle} degrees (mosaics: --content mosaics)"
            )
    return FrameFiles(name, tuple(frame[angle][0] for angle in ANGLES))


def _name_of(parts: Sequence[str], text: str) -> str:
    """Return the name of a frame: what a pattern leaves open of its files' names, or what is before the braces."""
    name = "_".join(filter(None, (part.strip("/").replace("/", "_") for part in parts)))
    return name or _JOINTS.sub("", Path(text.partition("{")[0] + "x").name[:-1]) or "frame"


def angle_groups(paths: Sequence[Path], takes_parts: bool = False) -> Tuple[List[FrameFiles], Dict[Path, bool]]:
    """Group files whose paths differ in one angle alone; and list all files that can be angle images by their names.

    Returns values as `frame_files`.

    A place at which other numbers occur too counts frames, or steps of a polarizer. An angle may stand in a path more
    than once.

    Args:
        paths: The files.
        takes_parts: Whether three of four angle images are no error.

    Raises:
        SourceError: A frame has three of the four angles, or several files of one.
    """
    places: Dict[Tuple[str, ...], Dict[int, List[Path]]] = {}
    for path in paths:
        for key, number in _angle_places(path):
            places.setdefault(key, {}).setdefault(number, []).append(path)
    whole = dict.fromkeys(ANGLES, 1)
    frames: List[FrameFiles] = []
    grouped: Set[Path] = set()
    for count in sorted({len(key) for key in places}):  # scene 45 at 45 degrees may have the number in two places
        rows = [row for key, row in places.items() if len(key) == count]
        sets = [tuple(row[k][0] for k in ANGLES) for row in rows if {k: len(row[k]) for k in row} == whole]
        frames += [FrameFiles(_common_name(row), row) for row in dict.fromkeys(sets) if grouped.isdisjoint(row)]
        grouped = {path for frame in frames for path in frame.files}
    named = dict.fromkeys(grouped, True)
    for row in places.values():
        files = [path for number in row for path in row[number]]
        angles = [number for number in row if number in ANGLES]
        # steps of 5 or 22.5 degrees from 0 on are those of a polarizer, not a number of frames
        is_step = all(number % 5 == 0 for number in row) or all(number % 45 in (0, 22, 23) for number in row)
        is_turned = min(row) == 0 and 90 <= max(row) <= 360 and is_step
        is_numbered = sorted(row) in ([0, 1, 2, 3], [1, 2, 3, 4])
        is_doubtful = is_turned or is_numbered or len(angles) == len(row)
        if len(row) < 2 or grouped.issuperset(files) or not is_doubtful:
            continue
        named.update(dict.fromkeys(files, not is_numbered))
        if len(row) == len(angles) > 2 and not takes_parts:
            _complete(row, "", str(files[0].parent))
    return sorted(frames, key=lambda frame: natural_order(frame.files[0])), named


def _angle_places(path: Path) -> Iterator[Tuple[Tuple[str, ...], int]]:
    """Yield the numbers in a path with the text around them: around one of their places, or several in a row."""
    text = str(path.with_suffix(""))
    by_number: Dict[int, List[Match[str]]] = {}
    for match in re.finditer("[0-9]+", text):
        by_number.setdefault(int(match.group()), []).append(match)
    for number, matches in by_number.items():
        for first, last in combinations(range(max(0, len(matches) - _MAX_PLACES), len(matches) + 1), 2):
            ends = [0, *(match.end() for match in matches[first:last])]
            starts = [*(match.start() for match in matches[first:last]), len(text)]
            yield (*(text[end:start] for end, start in zip(ends, starts)), path.suffix.lower()), number


def _common_name(files: Sequence[Path]) -> str:
    """Return the name of a frame: what the names of its files have in common, without the unit of the angle."""
    stems = [file.stem for file in files]
    if len(set(stems)) == 1:
        return stems[0]
    before, after = _around(stems)
    name = _JOINTS.sub("", _JOINTS.sub("", before) + _BEHIND.sub("", after))
    return name or files[0].parent.name


def _angle_folders(folder: Path) -> List[Path]:
    """Return the four folders in a folder that are named by angles, one for each, in their order; [] without these.

    Raises:
        SourceError: There are folders of other angles too.
    """
    folders = [path for path in folder.iterdir() if path.is_dir() and not is_hidden(path) and pictures_in(path)]
    numbers = numbers_in([path.name for path in folders])
    named: Dict[int, List[Path]] = {}
    for k, path in enumerate(folders):
        number = _NUMBER.search(path.name)
        angle = numbers[k] % 180 if numbers else float(number.group(1)) if number else -1
        named.setdefault(int(angle) if angle in ANGLES else -1, []).append(path)
    if not set(ANGLES) <= set(named):
        return []
    if numbers and len(folders) > len(ANGLES):
        listed = ", ".join(printable(path.name) for path in sorted(folders, key=natural_order))
        words = ",".join(sorted(named[angle], key=natural_order)[0].name for angle in ANGLES)
        raise SourceError(
            f"{folder} has folders of the angles 0, 45, 90 and 135, and of others ({listed}): name those of a frame by "
            f"a pattern such as {quoted(f'{folder}/{{{words}}}/*')}"
        )
    if any(len(named[angle]) > 1 for angle in ANGLES):
        return []
    return [named[angle][0] for angle in ANGLES]
