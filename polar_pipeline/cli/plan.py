"""`polar-pipeline plan`: launches, schedules and predicted time on a GPU."""

from __future__ import annotations

import argparse

from polar_pipeline.cli.command import Command
from polar_pipeline.cli.errors import FailureError
from polar_pipeline.cli.frame_arguments import add_frame_arguments, requested_raw_format
from polar_pipeline.cli.option_arguments import requested_options
from polar_pipeline.cuda.device import DEVICES
from polar_pipeline.cuda.report import plan_json, plan_report, plan_text
from polar_pipeline.cuda.tuned import ScheduleError
from polar_pipeline.sensor.frames import FrameError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=tuple(DEVICES), default="xavier", help="the GPU (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_frame_arguments(parser)


def _run(values: argparse.Namespace) -> int:
    options = requested_options(values)
    try:
        report = plan_report(options, DEVICES[values.device], requested_raw_format(values, options), values.size)
    except (FrameError, ScheduleError) as err:
        raise FailureError(str(err)) from err
    print(plan_json(report) if values.json else plan_text(report))
    return 0


COMMAND = Command(_add_arguments, _run)
