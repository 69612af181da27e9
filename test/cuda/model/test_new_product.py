"""A product that a user adds to the table gets launches on every device, without any other change to the planning."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support import ROOT

ROW = '    Product("ellipticity", "a product of a user", ("polar", "stokes_planes", "invalid"), (1, 3)),\n'
PLAN = """
from itertools import product
from polar_pipeline.cuda.model.device import DEVICES
from polar_pipeline.cuda.model.partition import partitions
from polar_pipeline.cuda.model.requested_work import work_of
from polar_pipeline.options import make_options
from polar_pipeline.plan import make_plan

requests = ("ellipticity", "intensity,ellipticity,ssim")
for sensor, names, depth in product(("IMX250MZR", "IMX250MYR"), requests, ("uint8", "float32", "uint16")):
    for more in ({}, {"resolution": "full"}, {"rotate": 90}):
        options = make_options(sensor, names, depth, **more)
        for device in DEVICES.values():
            best = partitions(work_of(options, "u8", (320, 256)), make_plan(options.products), options, device)[0]
            assert best.predicted_us > 0
"""


def test_a_new_row_is_planned(tmp_path: Path) -> None:
    for name in ("polar_pipeline", "config", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "package.xml", tmp_path)
    table = tmp_path / "polar_pipeline" / "products.py"
    text, place = table.read_text(encoding="utf-8"), '    Product(\n        "aolp",'
    assert text.count(place) == 1
    table.write_text(text.replace(place, ROW + place), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PLAN], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
