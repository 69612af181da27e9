"""The table of parameters, what it makes of values, and the YAML files that speak of it."""

from __future__ import annotations

import array
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from calibrations import ideal_calibration
from support import ROOT

from polar_pipeline import SENSORS, Pipeline
from polar_pipeline.calibration import save_calibration
from polar_pipeline.live.parameters import PARAMETERS, make_settings
from polar_pipeline.live.pipelines import RETRY_PERIOD, Fallback
from polar_pipeline.live.preset import read_nodes
from polar_pipeline.options import OPTIONS, ContradictionError, Option, make_options
from polar_pipeline.options.plan import needed_operators
from polar_pipeline.options.products import PRODUCTS, SSIM_PRODUCTS
from polar_pipeline.quality.statistics import LIMITS, QualityLimits

CONFIGS = sorted(path for path in (ROOT / "config").glob("*.yaml") if not path.stem.startswith("rig"))


def settings(**changes: Any):
    return make_settings(changes)


def test_defaults_are_those_of_the_library() -> None:
    assert settings().options == Pipeline(products=tuple(PRODUCTS)).options


def other_value(row: Option) -> Any:
    """A value of an option that is not its default."""
    if row.name == "sensor":
        return "IMX250MYR"
    if isinstance(row.default, tuple):
        return [not item if isinstance(item, bool) else 2 for item in row.default]
    if isinstance(row.default, bool):
        return not row.default
    if row.name in ("min_intensity", "demosaic"):  # whose last value is excluded, or needs another resolution
        return {"min_intensity": 0.05, "demosaic": "adaptive"}[row.name]
    return [*row.choices, *(row.limits or ())][-1]


def test_values_reach_the_pipeline() -> None:
    files = ("calibration", "rectify")
    rows = [row for row in OPTIONS.values() if row.parameter and row.name not in files]
    assert {row.name for row in rows} == {*OPTIONS} - {"products", "dtype", "output", *files}
    for row in rows:
        value = other_value(row)
        chosen = settings(**{row.parameter: value})
        arguments = chosen.arguments(("dolp", "ssim"))
        for options in (chosen.options, make_options(**arguments)):
            got = getattr(options, row.name)
            assert (got.name if row.name == "sensor" else got) == (tuple(value) if isinstance(value, list) else value)


def test_geometry_reaches_the_pipeline() -> None:
    changed = settings(**{"output.scale": 4, "output.rotate": 270, "output.roi": array.array("q", [1, 2, 3, 4])})
    options = Pipeline(**changed.arguments(("dolp", "ssim"))).options
    assert (options.scale, options.rotate, options.roi) == (4, 270, (1, 2, 3, 4))
    assert changed.computable(("dolp", "dolp_sigma", "aolp_sigma", "ssim")) == ("dolp", "ssim")
    assert settings().computable(("dolp", "dolp_sigma")) == ("dolp", "dolp_sigma")
    with pytest.raises(ValueError, match=r"output.roi must be \(x, y, width, height\), got \(1, 2\)"):
        settings(**{"output.roi": (1, 2)})


@pytest.mark.parametrize(
    ("parameter", "field", "value"),
    [
        ("queue_size", "queue_size", 5),
        ("output_depth", "output_depth", "uint8"),
        ("quality.always", "always", True),
        ("frame_id", "frame_id", "camera"),
        ("jpeg_quality", "jpeg_quality", 70),
        ("snapshot.folder", "snapshot_folder", "/data"),
        ("snapshot.quota_mb", "snapshot_quota_mb", 5),
        ("record.folder", "record_folder", "/data"),
        ("record.quota_mb", "record_quota_mb", 5),
        ("record.compress", "record_compress", False),
        ("on_device_error", "on_device_error", "stop"),
    ],
)
def test_values_reach_the_settings(parameter: str, field: str, value: Any) -> None:
    assert settings(**{parameter: value}) == replace(settings(), **{field: value})
    assert settings() != replace(settings(), **{field: value})


def test_the_same_on_the_cpu() -> None:
    for asked in ({"precision": "fp16"}, {"resolution": "full"}, {"resolution": "full", "demosaic": "adaptive"}):
        wanted = settings(backend="cpu", **{key: value for key, value in asked.items() if key != "precision"})
        with_gpu = replace(settings(), options=replace(settings().options, backend="cuda", **asked))
        assert with_gpu.on_cpu().options == wanted.options
        assert replace(with_gpu.on_cpu(), options=with_gpu.options) == with_gpu


def test_the_cpu_takes_over_for_a_while() -> None:
    now = 100.0
    fallback, wanted = Fallback(lambda: now), settings()
    assert fallback.settings(wanted) is wanted
    fallback.failed("lost")
    now += RETRY_PERIOD - 0.1
    assert fallback.settings(wanted) == wanted.on_cpu()
    assert fallback.settings(settings(on_device_error="retry")).options.backend == "auto"
    now += 0.2
    assert fallback.settings(wanted) is wanted
    assert fallback.reason == "lost"  # not tried yet
    fallback.worked()
    assert not fallback.reason


def test_limits_of_quality() -> None:
    assert settings().limits == QualityLimits()
    assert settings(**{"quality.ssim_warn": 0.9, "quality.frozen_frames": 3}).limits == QualityLimits(
        0.9, frozen_frames=3
    )
    assert {f"quality.{name}" for name in LIMITS} < set(PARAMETERS)


@pytest.mark.parametrize(
    ("depth", "light"),
    [("float32", "uint8"), ("uint8", "uint8"), ("uint16", "uint16")],
)
def test_output_depth_is_for_products_with_a_choice(depth: str, light: str) -> None:
    dtypes = settings(output_depth=depth).arguments(("intensity", "stokes", "dolp", "preview", "ssim"))["dtype"]
    assert dtypes == {"intensity": light, "stokes": "float32", "dolp": depth, "preview": "uint8", "ssim": "float32"}


@pytest.mark.parametrize("problem", [None, "no GPU"])
@pytest.mark.parametrize("backend", OPTIONS["backend"].choices)
@pytest.mark.parametrize("resolution", OPTIONS["resolution"].choices)
@pytest.mark.parametrize("demosaic", OPTIONS["demosaic"].choices)
def test_parameters_mean_the_same_everywhere(
    demosaic: str, resolution: str, backend: str, problem: Optional[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node computes by the options that its parameters name, whatever the machine has; so does replay elsewhere."""
    monkeypatch.setattr("polar_pipeline.pipeline.backend_problem", lambda _: problem)
    chosen = {"demosaic": demosaic, "resolution": resolution, "backend": backend}
    if demosaic == "learned" and resolution == "half":
        with pytest.raises(ContradictionError, match="demosaic 'learned' needs resolution 'full'"):
            settings(**chosen)
        return
    expected = make_options(products=tuple(PRODUCTS), **chosen)
    for found in (settings(**chosen), settings(**chosen).on_cpu()):
        assert (found.options.interpolation, found.options.debayer) == (expected.interpolation, expected.debayer)
        assert replace(found.options, backend=backend) == expected


def test_no_reference_without_ssim() -> None:
    assert tuple(name for name in PRODUCTS if "ssim_pair" in needed_operators((name,))) == SSIM_PRODUCTS
    chosen = settings(ssim_mode="reference", backend="cpu")
    assert Pipeline(**chosen.arguments(("dolp",))).options.ssim_mode == "consistency"
    assert Pipeline(**chosen.arguments(("dolp", "ssim"))).options.ssim_mode == "reference"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sensor", "IMX999", "IMX250MZR"),
        ("quality.ssim_warn", 0.4, "at most quality.ssim_warn"),
        ("quality.frozen_frames", 1, "at least 2"),
        ("raw.bit_depth", 17, "raw.bit_depth must be one of 0, 8, 9, 10, 11, 12, 13, 14, 15, 16, got 17"),
        ("snapshot.quota_mb", 0, "1, 1048576"),
        ("display.gain", 0.0, "above 0"),
        ("threads", None, "threads must be a number, got None"),
        ("threads", True, "threads must be a number, got True"),
        ("threads", 1.5, "threads must be a whole number, got 1.5"),
        pytest.param("threads", 10**6000, "threads must be in [0, 256], got <integer of", id="digits"),
        ("min_intensity", "0,1", "min_intensity must be a number, got '0,1'"),
        ("min_intensity", False, "min_intensity must be a number, got False"),
        ("co_sited", 2, "co_sited must be true or false, got 2"),
        ("frame_id", None, "frame_id must be text of letters, digits and _ - . /, at most 255 characters, got None"),
        ("sensor", 5.5, "sensor must be one of IMX250MZR"),
        ("record.folder", 5.5, "record.folder must be text of at most 4096 characters, without NUL, got 5.5"),
        ("frame_id", "007", "frame_id must not be what YAML reads as a number, a date or a truth value, got '007'"),
        ("frame_id", "2026-13-45", "frame_id must not be what YAML reads"),
        *(
            ("frame_id", text, "frame_id must not be what YAML reads")
            for text in ("no", "y", "1e3", "nan", "-", "0x1F")
        ),
        ("backend", ["cpu"], "backend must be one of auto, cpu, cuda, got ['cpu']"),
        ("raw.flip", ["yes", "no"], "raw.flip must be true or false, got 'yes'"),
        ("raw.roi_offset", "1 2", "raw.roi_offset must be a pair (x, y), got '1 2'"),
        ("raw.roi_offset", "[" * 4000, "raw.roi_offset must be a pair (x, y), got "),
        ("raw.roi_offset", array.array("d", [1.5, 2.0]), "raw.roi_offset must be a whole number, got 1.5"),
        ("display.gain", None, "display.gain must be 'auto' or a number above 0, at most 64, got None"),
        ("display.gain", True, "display.gain must be 'auto' or a number above 0, at most 64, got True"),
        ("display.white_balance", [1, 2.5, 1], "display.white_balance must be a number, text, or a list of either"),
    ],
)
def test_refused_values_say_what_is_allowed(name: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"debias": True, "output.scale": 2},
            "set output.scale=1, output.rotate=0, output.roi=[0, 0, 0, 0] and output.",
        ),
        ({"quality.ssim_error": 0.9}, "quality.ssim_error must be at most quality.ssim_warn, got 0.9 > 0.8"),
        ({"quality.dark_error": 0.1}, "quality.dark_error must be at least quality.dark_warn, got 0.1 < 0.5"),
    ],
)
def test_refusals_of_combinations_name_the_parameters(values: Dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        settings(**values)


def test_the_largest_frame_is_what_is_calibrated(tmp_path: Path) -> None:
    path = str(tmp_path / "sensor.npz")
    save_calibration(Path(path), ideal_calibration(SENSORS["IMX250MZR"], (256, 320)))
    assert settings().options.largest_frame() == (2048, 2448)
    chosen = settings(**{"calibration": path, "raw.roi_offset": [100, 20]})
    assert chosen.options.largest_frame() == (236, 220)
    for offset in ([305, 0], [0, 241]):
        with pytest.raises(ValueError, match=r"^raw\.roi_offset .* lies outside the calibration, which is of 320x256"):
            settings(**{"calibration": path, "raw.roi_offset": offset})


def test_values_are_converted_as_those_of_the_library() -> None:
    assert settings(min_intensity=1).options.min_intensity == 1.0
    chosen = settings(**{"threads": 1.0, "co_sited": 0, "raw.flip": [1, 0], "raw.roi_offset": array.array("d", [2, 4])})
    assert (
        chosen.options
        == settings(**{"threads": 1, "co_sited": False, "raw.flip": (True, False), "raw.roi_offset": (2, 4)}).options
    )
    assert settings(**{"display.gain": 2}).display.gain == 2.0


def test_what_concerns_the_disk_is_fixed_at_start() -> None:
    assert all(PARAMETERS[name].read_only for name in PARAMETERS if name.endswith((".folder", ".quota_mb")))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_fit_the_table(path: Path) -> None:
    ((node, values),) = read_nodes(path).items()
    assert node == "/**"  # any namespace
    assert set(values) <= set(PARAMETERS)
    for name, value in values.items():
        assert type(value) is (list if isinstance(PARAMETERS[name].default, tuple) else type(PARAMETERS[name].default))
    settings(**values)
