"""`polar-pipeline kernels`: compile every kernel and show the resources that each takes."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from polar_pipeline.cli.command import Command
from polar_pipeline.cli.errors import UsageError
from polar_pipeline.cuda.tools.usage import device_of_arch, usages


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default="sm_72", help="compute capability: sm_72 Xavier, sm_87 Orin, sm_90 H200")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(values: argparse.Namespace) -> int:
    try:
        device = device_of_arch(values.arch)
    except ValueError as err:
        raise UsageError(str(err)) from err
    rows = usages(device)
    if values.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print("registers  shared [B]  spills [B]  occupancy  kernel")
    for row in rows:
        print(f"{row.registers:9}  {row.shared_bytes:10}  {row.spill_bytes:10}  {row.occupancy:8.0%}   {row.name}")
    return 0


COMMAND = Command(_add_arguments, _run)
