"""`polar-pipeline process`: the products of one picture, as files."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from polar_pipeline._util.files import check_absent, replacing
from polar_pipeline._util.text import printable
from polar_pipeline.cli.argument_types import parse_path
from polar_pipeline.cli.errors import UsageError
from polar_pipeline.cli.option_arguments import add_pipeline_arguments, option_files, requested_pipeline
from polar_pipeline.cli.outputs import check_output_files
from polar_pipeline.cli.shared_arguments import add_shared_arguments, read_frame
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.pictures.colors import legend
from polar_pipeline.pictures.files import encode_picture
from polar_pipeline.quality.frame_checks import log_warnings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    add_shared_arguments(parser, "image", "--strict")
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
        choices=("tiff", "npy"),
        default="tiff",
        help="file format of float products; other products are PNG of 8 or 16 bit. Channels are S0, S1, S2 or red, "
        "green, blue, which cv2.imread returns in reverse order (default: %(default)s)",
    )
    add_shared_arguments(parser, "--force", "--max-mb")
    add_pipeline_arguments(parser, without=("ssim_mode",))  # there is no frame to compare with


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    with requested_pipeline(values, recording=values.image) as pipeline:
        paths = {}
        for name in (name for name in pipeline.options.products if not PRODUCTS[name].is_number):
            suffix = f".{values.format}" if pipeline.options.dtype_of(name) == "float32" else ".png"
            paths[name] = values.output / f"{values.image.stem}_{name}{suffix}"
        legends = {
            values.output / f"{values.image.stem}_{name}_legend.png": picture
            for name, picture in ((name, legend(name, pipeline.options.color_style)) for name in paths)
            if picture is not None
        }
        outputs = [*paths.values(), *legends]
        check_output_files(outputs, [values.image, *option_files(values)])
        if values.output.exists() and not values.output.is_dir():
            raise UsageError(f"{values.output} is not a folder")
        for path in outputs:  # before the first is written
            check_absent(path, values.force)
        frame, check = read_frame(values, pipeline.options)
        log_warnings(check.warnings)
        result = pipeline(frame)
    values.output.mkdir(parents=True, exist_ok=True)
    for name, array in result.items():
        if array.ndim == 0:
            print(f"{name} {float(array):.6f}")
            continue
        _write(paths[name], array, values.force)
    for path, picture in legends.items():
        _write(path, picture, values.force)
    print(f"{result.invalid[0]} pixels saturated, {result.invalid[1]} dark")
    return 0


def _write(path: Path, picture: np.ndarray, force: bool) -> None:
    with replacing(path, force) as stream:
        stream.write(encode_picture(picture, path.suffix))
    print(f"wrote {printable(str(path))}")
