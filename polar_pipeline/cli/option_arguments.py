"""The options of a pipeline as arguments: added from the table of options, and read back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from polar_pipeline._util.text import quoted
from polar_pipeline.cli.argument_types import parse_integer, parse_nonnegative, parse_products, parse_real
from polar_pipeline.cli.errors import FailureError, UsageError
from polar_pipeline.options import FROM_FRAMES, OPTIONS, Options, make_options
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.products import DEFAULT_PRODUCTS, PRODUCTS
from polar_pipeline.replay.camera_info import recorded_lens
from polar_pipeline.topics import PRODUCT_TOPICS

#: Arguments of `Pipeline`, by name.
Arguments = Dict[str, Any]
#: Options that say what the pixels of a frame are.
_OF_FRAMES = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")
#: Options that say what to compute and how, on any machine.
_OF_PRODUCTS = (
    *("products", "resolution", "precision", "demosaic", "ssim_mode", "dtype", "ssim_stride", "ssim_window"),
    *("ssim_sigma", "min_intensity", "camera_gain", "debias", "max_aolp_sigma", "polarizer_angle", "color_style"),
    *("co_sited", "calibration", "scale", "rotate", "roi", "rectify"),
)
#: Defaults that differ from the library's, as `--help` shows them; "" where it depends on the command.
_SHOWN_DEFAULTS = {
    "dtype": "as the live node publishes them",
    "products": "",
    "roi_offset": "0 0",
    "calibration": "",
    "roi": "all",
    "rectify": "",
}
#: What `--help` says beyond the option's own text.
_ADDED_TEXTS = {"products": f" Any of {', '.join(PRODUCTS)}."}


def add_pipeline_arguments(parser: argparse.ArgumentParser, is_single: bool = False) -> None:
    """Add the options of `Pipeline`.

    Args:
        parser: The command's.
        is_single: Whether the command processes a single frame, so that SSIM has no other to compare with.
    """
    names = ("backend", "threads", *_OF_FRAMES, *_OF_PRODUCTS)
    _add_options(parser, *(name for name in names if not (is_single and name == "ssim_mode")))


def add_tolerance_argument(parser: argparse.ArgumentParser) -> None:
    """Add the tolerances of a comparison; parsed, they are pairs of a product and its largest error."""
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        type=_parse_tolerance,
        metavar="PRODUCT=VALUE",
        help="largest error allowed in --compare; AoLP in degrees, 8-bit images in levels",
    )


def add_params_argument(parser: argparse.ArgumentParser) -> None:
    """Add the file of the live node's parameters, which `requested_arguments` reads."""
    parser.add_argument(
        "--params",
        type=Path,
        metavar="FILE.yaml",
        help="parameters of the live node, such as a snapshot's, for all options that the command line does not name",
    )


def _parse_tolerance(text: str) -> Tuple[str, float]:
    """A product and its tolerance from `PRODUCT=VALUE`."""
    name, separator, value = text.partition("=")
    if not separator or name not in PRODUCTS:
        raise argparse.ArgumentTypeError(
            f"expected PRODUCT=VALUE with a product among {', '.join(PRODUCTS)}, got {quoted(text)}"
        )
    return name, parse_nonnegative(value)


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to compute and how, without those of the machine."""
    _add_options(parser, *_OF_FRAMES, *_OF_PRODUCTS)


def add_frame_option_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the pixels of a frame are."""
    _add_options(parser, *_OF_FRAMES)


def _add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options by their names in `OPTIONS`. Those that the command line does not name are not in its values."""
    group = parser.add_argument_group("pipeline")
    for name in names:
        row = OPTIONS[name]
        if name == "co_sited":
            group.add_argument("--own-site", action="store_true", help=f"Turn co_sited off. co_sited: {row.text}")
        elif name == "debias":
            group.add_argument("--debias", action="store_true", default=argparse.SUPPRESS, help=row.text)
        elif name == "flip":
            group.add_argument("--flip-x", action="store_true", help=f"Turn ReverseX on. {row.text}")
            group.add_argument("--flip-y", action="store_true", help=f"Turn ReverseY on. {row.text}")
        else:
            default = _SHOWN_DEFAULTS.get(name, row.default)
            text = row.text + _ADDED_TEXTS.get(name, "")
            group.add_argument(
                f"--{name.replace('_', '-')}",
                default=argparse.SUPPRESS,
                help=text if default == "" else f"{text} (default: {default})",
                **_conversion(name),
            )


def _conversion(name: str) -> Dict[str, Any]:
    """How argparse reads an option."""
    row = OPTIONS[name]
    if name == "products":
        return {"type": parse_products, "metavar": "NAMES"}
    if name == "roi_offset":
        return {"type": parse_integer, "nargs": 2, "metavar": ("X", "Y")}
    if name == "roi":
        return {"type": parse_integer, "nargs": 4, "metavar": ("X", "Y", "WIDTH", "HEIGHT")}
    if row.choices:
        return {"choices": row.choices}
    if name in ("calibration", "rectify"):
        return {"metavar": "FILE"}
    if isinstance(row.default, str):
        return {}
    return {"type": parse_real if isinstance(row.default, float) else parse_integer, "metavar": row.unit.upper()}


def requested_pipeline(
    values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS, recording: Optional[Path] = None
) -> Pipeline:
    """The pipeline that the command line asks for.

    Args:
        values: The command line.
        products: Those to compute if it names none.
        recording: Where a lens calibration that comes with the frames is; None for nowhere.

    Raises:
        UsageError: An option is not allowed.
        SourceError: The recording has no lens calibration that can be used.
    """
    try:
        arguments = requested_arguments(values, products)
        if recording is not None and arguments.get("rectify") == FROM_FRAMES:
            arguments["rectify"] = recorded_lens(recording, values.topic, values.max_bytes)
        return Pipeline(**arguments)
    except ValueError as err:
        raise UsageError(str(err)) from err


def requested_options(values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS) -> Options:
    """The options that the command line asks for, with `products` if it names none.

    Raises:
        UsageError: An option is not allowed.
    """
    try:
        return make_options(**requested_arguments(values, products))
    except ValueError as err:
        raise UsageError(str(err)) from err


def requested_arguments(values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS) -> Arguments:
    """The arguments of `Pipeline` that the command line names, else those of --params; `products` if it names none."""
    products = getattr(values, "products", products)
    arguments: Dict[str, Any] = {"dtype": {name: PRODUCT_TOPICS[name].dtypes[0] for name in products}}
    if getattr(values, "params", None) is not None:
        arguments = _node_arguments(values.params, products)
    arguments.update({name: getattr(values, name) for name in OPTIONS if hasattr(values, name)})
    if values.flip_x or values.flip_y:
        arguments["flip"] = (values.flip_x, values.flip_y)
    if getattr(values, "own_site", False):
        arguments["co_sited"] = False
    return {**arguments, "products": products}


def _node_arguments(path: Path, products: Tuple[str, ...]) -> Dict[str, Any]:
    """The arguments with which a live node with this file of parameters would make these products."""
    try:
        from polar_pipeline.ros.parameters import make_settings
        from polar_pipeline.ros.preset import from_yaml
    except ImportError as err:
        raise FailureError(f"--params needs PyYAML: {err}") from err
    return make_settings(from_yaml(path)).arguments(products)
