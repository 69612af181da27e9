"""`polar-pipeline process`: frames of any source in, pictures, arrays or a video out."""

from __future__ import annotations

import argparse
import itertools
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Callable,
    Counter,
    DefaultDict,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
)

import numpy as np

from polar_pipeline._util.cpus import available_cores
from polar_pipeline._util.progress import with_bar
from polar_pipeline._util.text import numbered, printable
from polar_pipeline._util.threads import thread_pool
from polar_pipeline.cli.argument_types import parse_number, parse_path
from polar_pipeline.cli.errors import UsageError, errors_as, show_unusable
from polar_pipeline.cli.option_arguments import (
    add_pipeline_arguments,
    option_files,
    requested_pipeline,
)
from polar_pipeline.cli.shared_arguments import STATED_ARGUMENTS, add_shared_arguments, stated_contents
from polar_pipeline.options import OPTIONS, Options
from polar_pipeline.options.products import PRODUCTS, get_products
from polar_pipeline.pictures.export import FORMATS, Brightness, Exporter
from polar_pipeline.pictures.video import CODECS, VideoWriter, open_video
from polar_pipeline.pipeline import Result, input_frame
from polar_pipeline.quality.frame_checks import check_frame, log_warnings
from polar_pipeline.recordings.angle_files import frame_files, is_pattern
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.reader import stored_frame
from polar_pipeline.recordings.source import DEFAULT_RATE, Recorded, Source, holds_products, open_source
from polar_pipeline.replay.compare import Golden, open_golden
from polar_pipeline.sensor.frames import Frame, FrameError, FrameWarning

#: Products that are written by default: pictures to look at.
_PICTURES = ("intensity", "dolp_color", "aolp_color", "preview")
#: Frames that are read ahead, and frames that wait to be written, for each thread.
_AHEAD = 2
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


class _Loaded(NamedTuple):
    """A frame that was read and checked, or why it cannot be used."""

    name: str
    frame: Union[Frame, FrameError]
    warnings: Tuple[FrameWarning, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    parser.add_argument(
        "inputs",
        nargs="+",
        type=parse_path,
        metavar="INPUT",
        help="pictures, arrays (NPY, NPZ, MAT), folders, recordings, patterns such as 'scene_{000,045,090,135}.png', "
        "or - for a picture from the standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parse_path,
        default=Path(),
        metavar="FOLDER",
        help="folder for the results (default: current folder)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="png",
        help="png: pictures to look at; tiff: numbers, floats as TIFF and others as PNG; npy: an array per product; "
        "npz: an archive per frame. Numbers are floats unless --dtype is there. Channels are S0, S1, S2 or red, green, "
        "blue, which cv2.imread returns in reverse order (default: %(default)s)",
    )
    parser.add_argument(
        "--video",
        type=parse_path,
        metavar="FILE",
        help=f"also write a video ({', '.join(CODECS)}) of the product that --products names, else of the overview",
    )
    parser.add_argument(
        "--overview",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether an annotated picture of each frame is written; auto: unless --products names others "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--gain",
        type=_parse_gain,
        metavar="FACTOR|auto",
        help="brightness of light in pictures and videos; auto: by the first frame (default: auto)",
    )
    add_shared_arguments(parser, "--topic", *STATED_ARGUMENTS, "--rate", "--strict", "--force", "--max-mb")
    add_pipeline_arguments(parser, without=("ssim_mode",))  # each frame stands alone: SSIM has no second image


def _parse_gain(text: str) -> Optional[float]:
    return None if text == "auto" else parse_number(text, lowest=1e-3, highest=1e3)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    stated = stated_contents(values)
    values.inodes = _check_usage(values, stated)
    kinds = {path: str(path) != "-" and holds_products(path, values.max_bytes) for path in values.inputs}
    if any(kinds.values()):
        if not all(kinds.values()):
            raise UsageError("recordings of products and raw frames are processed one by one")
        return _export_products(values)
    return _process(values, stated)


def _check_usage(values: argparse.Namespace, stated: Stated) -> Set[Tuple[int, int]]:
    """Refuse outputs that would be inputs of the next run, and videos that cannot be written.

    Returns:
        Device and number of the inode of every input file, none of which may be replaced.
    """
    if values.output.exists() and not values.output.is_dir():
        raise UsageError(f"{values.output} is not a folder")
    if values.video is not None and values.video.suffix.lower() not in CODECS:
        raise UsageError(f"--video writes {' or '.join(CODECS)}, got {values.video}")
    is_picture = values.format == "png" and getattr(values, "dtype", "float32") == "float32"
    if values.gain is not None and not (is_picture or _has_overview(values) or values.video is not None):
        numbers = f"--format {values.format}" if values.format != "png" else f"--dtype {values.dtype}"
        raise UsageError(f"--gain is the brightness of pictures to look at; {numbers} writes numbers as they are")
    inodes: Set[Tuple[int, int]] = set()
    for path in (*option_files(values), *(path for path in values.inputs if str(path) != "-")):
        if is_pattern(str(path)):
            with errors_as(UsageError, SourceError):
                files = [file for row in frame_files(path, stated)[0] for file in row.files]
            is_input = values.output.resolve() in {file.parent.resolve() for file in files}  # a folder below is not
        else:
            files = [*path.iterdir()] if path.is_dir() else [path]
            place = values.output.resolve()
            is_input = path.is_dir() and path.resolve() in (place, *place.parents)
        if is_input:
            raise UsageError(f"{values.output} lies in an input, the folder of {path}: name another one by -o")
        inodes |= {_inode(file) for file in files if file.exists()}
    if values.video is not None and values.video.exists() and _inode(values.video) in inodes:
        raise UsageError(f"{values.video} would replace an input")
    return inodes


def _inode(path: Path) -> Tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _has_overview(values: argparse.Namespace) -> bool:
    return bool(values.overview == "yes" or (values.overview == "auto" and not hasattr(values, "products")))


# ------------------------------------------------------------------------------------------------------- raw frames


def _process(values: argparse.Namespace, stated: Stated) -> int:
    """Process raw frames."""
    with ExitStack() as stack:
        if not hasattr(values, "color_style") and not hasattr(values, "params"):
            values.color_style = "faded"
        if values.format != "png" and not hasattr(values, "dtype"):
            values.dtype = "float32"  # as the library; the types of the node's images have 8 bit for light
        pipeline = stack.enter_context(requested_pipeline(values, _PICTURES, values.inputs))
        options = pipeline.options
        exporter = _exporter(values, options.color_style)
        sources = [
            (path, stack.enter_context(open_source(path, values.topic, max_bytes=values.max_bytes, stated=stated)))
            for path in values.inputs
        ]
        records = ((path, source, k, record) for path, source in sources for k, record in enumerate(source.records))
        total = sum(source.total for _, source in sources)
        readers = stack.enter_context(thread_pool(available_cores()))
        frames = _ahead(readers, partial(_load, options, total > 1), records, _AHEAD * available_cores())
        names: Set[str] = set()
        unusable: DefaultDict[str, List[str]] = DefaultDict(list)
        warned: Counter[str] = Counter()
        invalid = np.zeros(2, np.int64)

        def results() -> Iterator[Tuple[str, Result]]:
            for row in with_bar(frames, total):
                try:
                    if isinstance(row.frame, FrameError):
                        raise row.frame
                    log_warnings(warning for warning in row.warnings if not warned[warning.cause])
                    warned.update(warning.cause for warning in row.warnings)
                    result = pipeline(row.frame)
                except FrameError as err:
                    unusable[err.cause].append(str(err))
                    continue
                invalid[:] += result.invalid
                numbered_names = (f"{row.name}_{number}" for number in itertools.count(2))
                name = next(name for name in itertools.chain([row.name], numbered_names) if name not in names)
                names.add(name)
                yield name, result

        count = _export(values, exporter, results(), options.products)
        show_unusable(unusable)
        unusable_count = sum(map(len, unusable.values()))
        if not count:
            raise SourceError(f"none of the {unusable_count} frames could be used; nothing written")
    print(f"{count} frames on {pipeline.device}, {unusable_count} could not be used")
    for cause, number in warned.items():
        if number > 1:
            print(f"{number} frames with the warning {cause}")
    print(f"{invalid[0]} pixels saturated, {invalid[1]} dark")
    return 0


def _load(options: Options, is_one_of_many: bool, row: Tuple[Path, Source, int, Recorded]) -> _Loaded:
    """Read and check a frame, in a thread; warnings about one of many begin with its name."""
    path, source, index, record = row
    name = path.stem
    try:
        stored = stored_frame(path, source, index, record)
        name = printable(stored.name) or name
        frame = input_frame(stored.to_frame(options), options)
    except FrameError as err:
        return _Loaded(name, err)
    warnings = check_frame(frame, options, stored.warnings).warnings
    if is_one_of_many:
        warnings = tuple(FrameWarning(row.cause, f"{name}: {row.text}") for row in warnings)
    return _Loaded(name, frame, warnings)


def _ahead(
    pool: ThreadPoolExecutor, call: Callable[[_Item], _Value], items: Iterable[_Item], depth: int
) -> Iterator[_Value]:
    """Yield the results of calls in their order, with up to `depth` of them in progress."""
    waiting: Deque[Any] = deque()
    for item in items:
        waiting.append(pool.submit(call, item))
        if len(waiting) >= depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


# --------------------------------------------------------------------------------------------------------- products


def _export_products(values: argparse.Namespace) -> int:
    """Export recordings of this package's products as they are.

    Raises:
        UsageError: An argument is for raw frames.
    """
    options = [name for name, row in OPTIONS.items() if row.group != "library" and name != "products"]
    raw = [name for name in options if hasattr(values, name)]
    if raw:
        raise UsageError(f"--{raw[0].replace('_', '-')} is for raw frames; the input holds products")
    count = 0
    for path in values.inputs:
        with open_golden(path, values.max_bytes, allow_truncated=True) as recording:
            there = get_products(recording.places)
            products = [name for name in getattr(values, "products", there) if name in there]
            if not products:
                raise SourceError(f"{path} has none of these products; it has {', '.join(there)}")
            count += _export(values, _exporter(values, "plain"), _recorded_results(path, recording, products), products)
    print(f"{count} frames of products, as they were recorded")
    return 0


def _recorded_results(
    path: Path, recording: Golden, products: List[str]
) -> Iterator[Tuple[str, Dict[str, np.ndarray]]]:
    """Yield the products of each frame of a recording, under the recording's name and the number of the frame."""
    frames = recording.frames()
    for k, frame in enumerate(with_bar(frames, len(frames))):
        images = ((name, recording.load(name, *frame)) for name in products)
        yield numbered(path.stem, k, len(frames)), {name: array for name, array in images if array is not None}


def _exporter(values: argparse.Namespace, color_style: str) -> Exporter:
    is_exact = hasattr(values, "dtype")
    brightness = Brightness(values.gain)
    return Exporter(
        values.output, values.format, _has_overview(values), values.force, color_style, is_exact, brightness
    )


def _export(
    values: argparse.Namespace,
    exporter: Exporter,
    results: Iterable[Tuple[str, Mapping[str, np.ndarray]]],
    products: Sequence[str],
) -> int:
    """Write the products of frames, and return the number of frames; threads write while the next are computed."""
    images = [name for name in products if hasattr(values, "products") and not PRODUCTS[name].is_number]
    count, legends = 0, {}
    with ExitStack() as stack:
        writers = stack.enter_context(thread_pool(available_cores()))
        video: Optional[VideoWriter] = None
        writes: Deque[Any] = deque()
        for name, result in results:
            if not count:
                exporter.brightness.set_by(result)
                legends = exporter.legends(products)
                exporter.folder.mkdir(parents=True, exist_ok=True)
            paths = [*exporter.paths(name, result).values(), *legends]
            replaced = next((path for path in paths if path.exists() and _inode(path) in values.inodes), None)
            if replaced is not None:
                raise UsageError(f"{replaced} would replace an input")
            exporter.check(name, result)
            for number, value in result.items():
                if not value.ndim:
                    print(f"{name} {number} {float(value):.6f}")
            if values.video is not None:
                is_single = len(images) == 1
                rgb = exporter.picture(images[0], result[images[0]]) if is_single else exporter.overview(name, result)
                if video is None:
                    rate = values.rate or DEFAULT_RATE
                    video = stack.enter_context(open_video(values.video, rgb.shape[:2], rate, values.force))
                if rgb.shape[:2] != video.size:
                    sizes = "{1}x{0} pixels, and the frames before it {3}x{2}".format(*rgb.shape[:2], *video.size)
                    raise UsageError(f"--video: a picture of {name} has {sizes}; a video is of frames of one size")
                video.add(rgb)
            writes.append(writers.submit(exporter.write, name, dict(result)))
            count += 1
            while len(writes) > _AHEAD * available_cores():
                writes.popleft().result()
        for future in writes:
            future.result()
        if count:
            exporter.write_legends(legends)
    if count:
        print(f"wrote {printable(str(exporter.folder))}")
    if count and values.video is not None:
        print(f"wrote {printable(str(values.video))}")
    return count
