"""`polar-pipeline camera`: lists cameras, shows what one is set to, and sets its GenICam features."""

from __future__ import annotations

import argparse
from contextlib import closing

from polar_pipeline._util.text import printable
from polar_pipeline.camera.aravis import CameraDevice, list_cameras
from polar_pipeline.camera.facts import mosaic_formats, read_facts, read_ptp
from polar_pipeline.camera.settings import CameraSettings, ranges, read_back
from polar_pipeline.camera.source import find_camera
from polar_pipeline.cli.errors import FailureError, UsageError
from polar_pipeline.sensor.mosaic import sensor_of_model

_CAMERA = "serial number or IP address (default: the first polarization camera)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser."""
    actions = parser.add_subparsers(metavar="COMMAND")
    actions.required = True
    text = "Print a line for each camera: maker, model, serial number, address, sensor."
    actions.add_parser("list", help=text, description=text).set_defaults(act=_list)
    text = "Print the state of a camera, and the ranges of its settings."
    info = actions.add_parser("info", help=text, description=text)
    info.add_argument("camera", nargs="?", default="", metavar="CAMERA", help=_CAMERA)
    info.set_defaults(act=_info)
    text = "Write GenICam features, in this order, and print what the camera then has."
    write = actions.add_parser("set", help=text, description=text)
    write.add_argument("camera", nargs="?", default="", metavar="CAMERA", help=_CAMERA)
    write.add_argument("features", nargs="+", metavar="FEATURE=VALUE", help="feature, such as ExposureTime=5000")
    write.set_defaults(act=_set)


def run(values: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    values.act(values)
    return 0


def _list(_: argparse.Namespace) -> None:
    rows = list_cameras()
    for row in rows:
        texts = (row.vendor, row.model, row.serial, row.address, sensor_of_model(row.model) or "unknown sensor")
        print("  ".join(map(printable, texts)))
    if not rows:
        raise FailureError("no camera answers: check cable, power, and that both addresses are of one network")


def _info(values: argparse.Namespace) -> None:
    camera = find_camera(values.camera)
    with closing(CameraDevice(camera)) as device:
        settings = read_back(device, CameraSettings())
        limits = ranges(device, settings)
        rows = {
            **read_facts(device).values(),
            "address": camera.address,
            "frame rate [Hz]": f"{settings.frame_rate:g}",
            "packet size [bytes]": str(settings.packet_size),
            "automatic exposure": settings.exposure_auto,
            "PTP": read_ptp(device) or "off",
            "formats of the mosaic": ", ".join(mosaic_formats(device)),
            "controlled by": "nobody else" if device.is_controller() else "another process",
        }
    names = {"exposure [us]": "exposure_us", "gain [dB]": "gain_db", "frame rate [Hz]": "frame_rate"}
    for name, text in rows.items():
        low, high = limits.get(names.get(name, ""), (None, None))
        print(f"{name:24}{printable(text, 1000)}" + (f"   ({low:g} to {high:g})" if low is not None else ""))


def _set(values: argparse.Namespace) -> None:
    words, camera = values.features, values.camera
    if "=" in camera:  # it is the first feature
        words, camera = [camera, *words], ""
    pairs = [word.partition("=")[::2] for word in words]
    if not all(name and value for name, value in pairs):
        raise UsageError("features are given as FEATURE=VALUE, such as ExposureTime=5000")
    with closing(CameraDevice(find_camera(camera))) as device:
        device.require_control()
        for name, value in pairs:
            device.set(name, value)
        for name, _ in pairs:
            print(f"{name}={printable(device.get(name))}")
