"""The options of a pipeline and of a camera as arguments: added from the tables of options, and read back."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

from polar_pipeline._util.paths import as_path
from polar_pipeline.camera.recorded import OF_THE_CAMERA, Arguments, with_recorded_state
from polar_pipeline.camera.settings import CAMERA_OPTIONS, CameraSettings
from polar_pipeline.cli.argument_types import parse_integer, parse_number, parse_products
from polar_pipeline.cli.errors import UsageError, errors_as
from polar_pipeline.cli.shared_arguments import stated_contents
from polar_pipeline.live.parameters import make_settings
from polar_pipeline.live.preset import from_yaml
from polar_pipeline.options import FROM_FRAMES, OPTIONS, Option, Options, make_options
from polar_pipeline.options.option import validate
from polar_pipeline.options.products import DEFAULT_PRODUCTS, PRODUCTS, get_products
from polar_pipeline.pipeline import Pipeline
from polar_pipeline.recordings.limits import MAX_BYTES
from polar_pipeline.recordings.source import recorded_lens


def option_files(values: argparse.Namespace) -> List[Path]:
    """Return the files that arguments of a pipeline name: parameters, a calibration, a lens.

    Raises:
        UsageError: A path cannot be understood (`as_path`).
    """
    names = (getattr(values, name, None) for name in ("params", "calibration", "rectify"))
    with errors_as(UsageError):
        return [as_path(name) for name in names if name]


#: Pixel format of captured frames: calibrations want the deepest.
CAPTURE_FORMAT = "12p"
#: Settings of a camera that are arguments -> how the argument differs from the node's parameter.
_CAMERA_ARGUMENTS: Dict[str, Dict[str, Any]] = {
    "pixel_format": {"default": CAPTURE_FORMAT},
    "exposure_us": {"text": "Exposure time; 0 keeps the camera's."},
    "exposure_auto": {"text": "Automatic exposure; 'off' for frames of a calibration."},
    "gain_db": {},
    "frame_rate": {},
    "roi": {},
    "packet_size": {},
    "packet_delay_ns": {},
    "features": {},
}
#: Option that is a pair of truth values -> the argument that inverts each, with the first words of its help.
_FLAGS = {"flip": {"--flip-x": "Turn ReverseX on. ", "--flip-y": "Turn ReverseY on. "}}
#: Option whose argument needs no value -> the value without one: the argument was a flag in earlier versions.
_WITHOUT_VALUE = {"exposure_auto": "camera"}
#: Argument -> its former name, which is still taken.
_FORMER_NAMES = {"--no-co-sited": "--own-site"}
#: Option -> what `--help` calls its values, if not by their unit.
_METAVARS: Dict[str, Tuple[str, ...]] = {
    "products": ("NAMES",),
    "calibration": ("FILE",),
    "rectify": ("FILE",),
    "features": ("YAML",),
    "roi_offset": ("X", "Y"),
    "roi": ("X", "Y", "WIDTH", "HEIGHT"),
}
#: Group of options (`Option.group`) -> its heading in the help, in the order of the help.
_GROUPS = {
    "frame": "raw frames",
    "products": "products",
    "ssim": "SSIM",
    "geometry": "geometry",
    "machine": "machine",
}
#: Type of an option, or of its items -> how argparse reads a value.
_PARSERS: Dict[type, Callable[[str], object]] = {int: parse_integer, float: parse_number, str: str}


class _SetOpposite(argparse.Action):
    """Action that inverts a truth value, or one of a pair; `const` is the default and the index in the pair."""

    def __call__(self, _: object, namespace: argparse.Namespace, *__: object) -> None:
        default, index = self.const
        value: Any = not default
        if isinstance(default, tuple):
            value = list(getattr(namespace, self.dest, default))
            value[index] = not default[index]
        setattr(namespace, self.dest, value)


def add_pipeline_arguments(
    parser: argparse.ArgumentParser,
    groups: Tuple[str, ...] = tuple(_GROUPS),
    without: Tuple[str, ...] = (),
) -> None:
    """Add the options of `Pipeline`. Those that the command line does not name are not in its values.

    Args:
        parser: The command's.
        groups: Groups of the options (`Option.group`).
        without: Names of options that the command does not have.
    """
    for group in groups:
        into = parser.add_argument_group(_GROUPS[group])
        for row in (row for row in OPTIONS.values() if row.group == group and row.name not in without):
            _add_option(into, row)


def add_camera_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the camera and its settings, which `requested_camera` reads."""
    into = parser.add_argument_group("camera")
    into.add_argument(
        "--camera",
        default="",
        metavar="SERIAL|IP",
        help="serial number or IP address of the camera (default: the first polarization camera)",
    )
    for name, changes in _CAMERA_ARGUMENTS.items():
        _add_option(into, replace(CAMERA_OPTIONS[name], **changes))


def requested_camera(values: argparse.Namespace) -> CameraSettings:
    """Return the settings of the camera that the command line requests.

    Raises:
        UsageError: A setting is not allowed.
    """
    settings = {name: getattr(values, name) for name in _CAMERA_ARGUMENTS if hasattr(values, name)}
    settings["source"] = f"aravis:{values.camera}" if values.camera else "aravis"
    with errors_as(UsageError):
        return CameraSettings(
            **validate(
                CAMERA_OPTIONS,
                {"pixel_format": CAPTURE_FORMAT, **settings},
                lambda row: "--camera" if row.name == "source" else _argument(row.name),
            )
        )


def _argument(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _add_option(into: argparse._ArgumentGroup, row: Option) -> None:
    """Add the argument of an option. If the command line does not have it, it is not in the parsed values."""
    unset: Dict[str, Any] = {"dest": row.name, "default": argparse.SUPPRESS}
    items = row.default if isinstance(row.default, tuple) else (row.default,)
    if isinstance(items[0], bool):
        off = {_argument(f"no_{row.name}"): f"Turn {row.name} off. {row.name}: "}
        for k, (flag, does) in enumerate(
            _FLAGS.get(row.name, off if row.default else {_argument(row.name): ""}).items()
        ):
            const = (row.default, k)
            into.add_argument(flag, action=_SetOpposite, nargs=0, const=const, help=does + row.text, **unset)
            if flag in _FORMER_NAMES:
                former = _FORMER_NAMES[flag]
                into.add_argument(former, action=_SetOpposite, nargs=0, const=const, help=argparse.SUPPRESS, **unset)
        return
    names = _METAVARS.get(row.name) or tuple(filter(None, [row.unit.upper()]))
    is_products = row.name == "products"
    of_types = "as the live node publishes them; for arrays of process float32"
    default = of_types if row.name == "dtype" else " ".join(map(str, items))
    ending = f" Any of {', '.join(PRODUCTS)}." if is_products else f" (default: {default})" if default else ""
    into.add_argument(
        _argument(row.name),
        type=parse_products if is_products else _PARSERS[type(items[0])],
        choices=[word for word in row.choices if isinstance(word, str)] or None,
        nargs=len(names) if len(names) > 1 else "?" if row.name in _WITHOUT_VALUE else None,
        const=_WITHOUT_VALUE.get(row.name),
        metavar=names if len(names) > 1 else next(iter(names), None),
        help=row.text + ending,
        **unset,
    )


def requested_pipeline(
    values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS, recordings: Sequence[Path] = ()
) -> Pipeline:
    """Create the pipeline that the command line requests; the arguments are those of `requested_arguments`.

    Raises:
        UsageError: An option is not allowed.
        SourceError: A recording has no lens calibration that can be used, or another one than the first.
    """
    with errors_as(UsageError):
        arguments = requested_arguments(values, products, recordings)
        if recordings and arguments.get("rectify") == FROM_FRAMES:
            lenses = [recorded_lens(path, getattr(values, "topic", ""), values.max_bytes) for path in recordings]
            if any(lens != lenses[0] for lens in lenses):
                raise UsageError("the inputs have different lens calibrations: process them one by one")
            arguments["rectify"] = lenses[0]
        return Pipeline(**arguments)


def requested_options(
    values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS, recordings: Sequence[Path] = ()
) -> Options:
    """Return the options that the command line requests; the arguments are those of `requested_arguments`.

    Raises:
        UsageError: An option is not allowed.
    """
    with errors_as(UsageError):
        return make_options(**requested_arguments(values, products, recordings))


def requested_arguments(
    values: argparse.Namespace, products: Tuple[str, ...] = DEFAULT_PRODUCTS, recordings: Sequence[Path] = ()
) -> Arguments:
    """Return the arguments of `Pipeline` from the command line, else from --params, else from the recorded camera.

    Options `OF_THE_CAMERA` that neither sets are left out: a recording may tell them.

    Args:
        values: The command line.
        products: Those to compute if it names none.
        recordings: Recordings or pictures that may have the state of the camera, which must be the same.

    Raises:
        ValueError: An option is not allowed, or contradicts the state of the camera.
        SourceError: A pattern among the recordings has no files.
    """
    products = getattr(values, "products", products)
    params = getattr(values, "params", None)
    settings = make_settings(from_yaml(params) if params else {})  # as of a live node
    unset = {*OF_THE_CAMERA} - settings.changed_options
    arguments = {name: value for name, value in settings.arguments(get_products(products)).items() if name not in unset}
    rows = (row for row in OPTIONS.values() if row.group != "library")  # `output` is another argument here
    arguments.update({row.name: getattr(values, row.name) for row in rows if hasattr(values, row.name)})
    arguments["products"] = products
    if not recordings:
        return arguments
    topic, max_bytes = getattr(values, "topic", ""), getattr(values, "max_bytes", MAX_BYTES)
    return with_recorded_state(arguments, recordings, topic, max_bytes, stated_contents(values))
