"""Files that are frames: each file, or four files that hold the images behind polarizers at four angles.

A pattern names the latter, such as `scene_{000,045,090,135}.png` or `{scene}_{angle}.tif`; without one, names that
differ in the angle alone do, or four folders that are named by angles.
"""

from __future__ import annotations

import re
from glob import glob, has_magic
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from polar_pipeline._util.paths import is_hidden, natural_order
from polar_pipeline._util.text import printable, quoted
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.sensor.mosaic import ANGLES

#: Parts of a pattern: alternatives, a named part, or wildcards of the shell.
_PARTS = re.compile(r"\{([^{}/]*,[^{}]*)\}|\{(\w+)\}|(\*\*/|\*|\?)")
#: A number in a name that can be an angle in degrees.
_NUMBER = re.compile(r"(?<![0-9.])(0*(?:0|45|90|135))(?![0-9.]*[0-9])")
#: What is left around the angle in a name, and does not belong to the name of the frame.
_JOINTS = re.compile(r"(?i)(?:[_\-. ]*(?:angle|pol|deg|degrees|i|p|d))?[_\-. ]*$|^[_\-. ]+")


#: Suffixes of pictures, of arrays, and of video.
PICTURES = (".png", ".tif", ".tiff", ".pgm", ".bmp")
ARRAYS = (".npy", ".npz", ".mat")
VIDEOS = (".mkv", ".avi", ".mov", ".mp4")
#: Suffixes of the files that hold frames without times.
SUFFIXES = (*PICTURES, *ARRAYS, *VIDEOS)
#: Suffixes of files without a header, whose format the user states.
RAW = (".raw", ".bin", ".dat")
#: Files that can be read, for errors.
EXPECTED = f".mcap, .db3, .bag, a rosbag2 folder, {', '.join(SUFFIXES)}"


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


def frame_files(path: Path, stated: Stated) -> Tuple[List[FrameFiles], bool]:
    """List the frames of a picture, a folder or a pattern; and whether names alone say that four files are one frame.

    Raises:
        SourceError: There are none, or it is not clear which files are a frame.
    """
    suffixes = (*SUFFIXES, *RAW) if stated.raw else SUFFIXES
    if str(path) == "-":
        return [FrameFiles("stdin", (path,))], False
    if is_pattern(str(path)):
        return files_of_pattern(str(path)), False
    singly = stated.content in ("mosaics", "tiles", "stokes") or bool(stated.raw)
    if not path.is_dir():
        if path.suffix.lower() not in (*suffixes, *RAW) and not stated.raw:
            raise SourceError(f"{path} holds neither a recording nor pictures; expected {EXPECTED}")
        group = next(
            (row for row in ([] if singly else angle_groups(pictures_in(path.parent))) if path in row.files), None
        )
        if group is not None:
            listed = ", ".join(printable(file.name) for file in group.files)
            raise SourceError(
                f"{path} is one of four angle images by its name, {listed}: name the folder or a pattern such as "
                f"{quoted(_pattern_of(group))}, or say --content mosaics"
            )
        return [FrameFiles(path.stem, (path,))], False
    files = pictures_in(path, suffixes)
    if not files:
        folders = angle_folders(path, suffixes)
        if folders is None:
            raise SourceError(f"{path} holds neither a recording nor pictures; expected {EXPECTED}")
        return folders, True
    groups = [] if singly else angle_groups(files)
    if not groups:
        return [FrameFiles(file.stem, (file,)) for file in files], False
    grouped = [file for group in groups for file in group.files]
    others = [file for file in files if file not in grouped]
    if others or len(set(grouped)) < len(grouped):
        which = others[0] if others else next(file for file in grouped if grouped.count(file) > 1)
        raise SourceError(
            f"{path} has four angle images by their names, such as {printable(groups[0].files[1].name)}, and it is not "
            f"clear what {printable(which.name)} is: name the angle images by a pattern such as "
            f"{quoted(_pattern_of(groups[0]))}, or say --content mosaics"
        )
    return groups, True


def _pattern_of(group: FrameFiles) -> str:
    """Return a pattern of the names of a group: the angles in braces, and what is before and behind them."""
    split = [re.fullmatch(rf"(.*?)(0*{angle})(\D.*)", file.name) for angle, file in zip(ANGLES, group.files)]
    words = ",".join(match.group(2) for match in split if match)
    first = split[1]
    return f"{group.files[0].parent}/{first.group(1)}{{{words}}}{first.group(3)}" if first else str(group.files[0])


def is_pattern(text: str) -> bool:
    """Return whether a source is a pattern instead of a path: one with `{...}` or wildcards that does not exist."""
    return (has_magic(text) or _PARTS.search(text) is not None) and not Path(text).exists()


def files_of_pattern(text: str) -> List[FrameFiles]:
    """Find the files of a pattern in natural order.

    Args:
        text: A path with wildcards (`*`, `?`, `**/`) and, for four angle images, one set of four alternatives
            (`{000,045,090,135}`) or `{angle}`; other names in braces (`{scene}`) stand for any text. Alternatives
            that are not angles have the order of angles.

    Raises:
        SourceError: There are no such files, or a frame has not all four angles.
    """
    alternatives = [match.group(1).split(",") for match in _PARTS.finditer(text) if match.group(1)]
    has_angles = bool(alternatives) or "{angle}" in text
    if any(len(row) != len(ANGLES) or row != alternatives[0] for row in alternatives):
        raise SourceError(
            f"{printable(text)} must have the same four alternatives in all braces, in the order of angles"
        )
    regex, wild, end, groups = "", "", 0, 0
    for match in _PARTS.finditer(text):
        fixed = text[end : match.start()]
        regex, wild, end = regex + re.escape(fixed), wild + fixed, match.end()
        listed, name, wildcard = match.groups()
        if listed or name == "angle":
            words = alternatives[0] if listed else None
            options = "|".join(map(re.escape, words)) if words else "0*(?:0|45|90|135)"
            regex += "(?P=angle)" if "(?P<angle>" in regex else f"(?P<angle>{options})"
            wild += "*"
        else:
            groups += 1
            any_text = {"**/": "(?:.*/)?", "?": "[^/]"}.get(wildcard or "", "[^/]*?" if name else "[^/]*")
            regex, wild = f"{regex}(?P<g{groups}>{any_text})", wild + (wildcard or "*")
    regex, wild = regex + re.escape(text[end:]), wild + text[end:]
    frames: Dict[Tuple[str, ...], Dict[int, Path]] = {}
    single: List[FrameFiles] = []
    for path in sorted(map(Path, glob(wild, recursive=True)), key=natural_order):  # noqa: PTH207 - of any root
        parts = re.fullmatch(regex, str(path))
        if parts is None or is_hidden(path):
            continue
        if not has_angles:
            single.append(FrameFiles(path.stem, (path,)))
            continue
        place = _place_of(parts.group("angle"), alternatives[0] if alternatives else [])
        key = tuple(parts.group(f"g{k}") or "" for k in range(1, groups + 1))
        frames.setdefault(key, {})[place] = path
    if not frames and not single:
        raise SourceError(f"no file matches {quoted(text)}")
    return single or [_complete(frame, _name_of(key, text), text) for key, frame in frames.items()]


def _place_of(word: str, alternatives: Sequence[str]) -> int:
    """Return the place of a part of a name among the angles: by the number in it, else as it is listed."""
    numbers = [_NUMBER.search(each) for each in alternatives or [word]]
    stated = [int(number.group(1)) for number in numbers if number]
    if not alternatives:
        return ANGLES.index(stated[0])
    place = list(alternatives).index(word)
    return ANGLES.index(stated[place]) if sorted(stated) == list(ANGLES) else place


def _complete(frame: Dict[int, Path], name: str, what: str) -> FrameFiles:
    """Return the four files of a frame, by their places.

    Raises:
        SourceError: Some are missing.
    """
    missing = ", ".join(str(angle) for place, angle in enumerate(ANGLES) if place not in frame)
    if missing:
        there = ", ".join(printable(path.name) for path in frame.values())
        raise SourceError(f"{printable(what)}: beside {there} there is no image at {missing} degrees")
    return FrameFiles(name, tuple(frame[place] for place in range(len(ANGLES))))


def _name_of(parts: Sequence[str], text: str) -> str:
    """Return the name of a frame: what a pattern leaves open of its files' names, or what is before the braces."""
    name = "_".join(filter(None, (part.strip("/").replace("/", "_") for part in parts)))
    return name or _JOINTS.sub("", Path(text.partition("{")[0] + "x").name[:-1]) or "frame"


def angle_groups(paths: Iterable[Path]) -> List[FrameFiles]:
    """Group files whose names differ in one angle alone; others are left out.

    A place at which other numbers occur too counts frames, or settings of a calibration.

    Raises:
        SourceError: Three files are such a group, and the fourth is missing.
    """
    groups: Dict[Tuple[Path, str, str, str], Dict[str, Path]] = {}
    for path in paths:
        for match in re.finditer("[0-9]+", path.stem):
            key = path.parent, path.stem[: match.start()], path.stem[match.end() :], path.suffix
            groups.setdefault(key, {})[match.group()] = path
    frames = []
    for (folder, before, after, _), members in groups.items():
        places = {ANGLES.index(int(number)): path for number, path in members.items() if int(number) in ANGLES}
        if len(places) == len(members) and len(places) >= len(ANGLES) - 1:
            name = _JOINTS.sub("", _JOINTS.sub("", before) + _BEHIND.sub("", after))
            frames.append(_complete(places, name or folder.name, "--content mosaics, or"))
    return sorted(frames, key=lambda frame: natural_order(frame.files[0]))


def angle_folders(folder: Path, suffixes: Tuple[str, ...]) -> Optional[List[FrameFiles]]:
    """Group the files in four folders named by angles, one for each; None if a folder has no such folders.

    Raises:
        SourceError: A file has not all four angles.
    """
    named: Dict[int, Path] = {}
    for path in (path for path in folder.iterdir() if path.is_dir() and not is_hidden(path)):
        number = _NUMBER.search(path.name)
        if number is None or int(number.group(1)) in named:
            return None
        named[int(number.group(1))] = path
    if set(named) != set(ANGLES):
        return None
    files = {
        angle: [path for path in place.iterdir() if path.suffix.lower() in suffixes and not is_hidden(path)]
        for angle, place in named.items()
    }
    for name_of in (_plain_name, _name_without_angle):  # the angle may be in the names of files, too
        frames: Dict[str, Dict[int, Path]] = {}
        for place, angle in enumerate(ANGLES):
            for path in files[angle]:
                frames.setdefault(name_of(path.stem, angle), {})[place] = path
        if all(len(frame) == len(ANGLES) for frame in frames.values()) and len(frames) == len(files[0]):
            break
    if not frames:
        return None
    return [_complete(frames[name], name or folder.name, str(folder)) for name in sorted(frames, key=natural_order)]


def _plain_name(stem: str, _: int) -> str:
    return stem


def _name_without_angle(stem: str, angle: int) -> str:
    return _JOINTS.sub("", re.sub(rf"(?<![0-9])0*{angle}(?![0-9])", "", stem, count=1))
