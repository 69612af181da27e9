"""From options to launches: the kernels that can do them, limits of devices, schedules and their files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple, cast

import pytest
from calibrations import ideal_calibration, lens

from polar_pipeline.backends.backend import ScheduleError
from polar_pipeline.backends.cuda import launch as launch_module
from polar_pipeline.backends.cuda.device import DEVICES, Device, from_properties, occupancy, resident_blocks
from polar_pipeline.backends.cuda.geometry import GeometryLaunch
from polar_pipeline.backends.cuda.launch import Launch, Schedule, compile_launch, register_bound
from polar_pipeline.backends.cuda.polarization import KERNELS, PolarizationLaunch
from polar_pipeline.backends.cuda.program import requested_launches
from polar_pipeline.backends.cuda.schedules import (
    TUNED_VARIABLE,
    Measured,
    choose,
    save_schedule,
    shipped_path,
    tuned_path,
)
from polar_pipeline.backends.cuda.ssim import SsimLaunch
from polar_pipeline.options import make_options
from polar_pipeline.sensor.mosaic import get_sensor

XAVIER, ORIN, H200 = (DEVICES[name] for name in ("xavier", "orin", "h200"))
#: For which nothing is shipped.
TURING = replace(XAVIER, name="turing", arch="sm_75")
SIZE, SMALL = (2448, 2048), (128, 64)
MONO, COLOR = "IMX250MZR", "IMX250MYR"
POLAR = "intensity,dolp,aolp"
LIVE = f"{POLAR},preview"
FULL = {"resolution": "full"}


def launches(
    products: Any = POLAR, raw_format: str = "u8", size: Tuple[int, int] = SIZE, **options: Any
) -> Tuple[Launch, ...]:
    """The launches of options, whose products are bytes unless they say otherwise."""
    return requested_launches(make_options(products=products, **{"dtype": "uint8", **options}), raw_format, size)


def first(*arguments: Any, **options: Any) -> PolarizationLaunch:
    launch = launches(*arguments, **options)[0]
    assert isinstance(launch, PolarizationLaunch)
    return launch


def similarity(products: str = "ssim_map,ssim", **options: Any) -> SsimLaunch:
    launch = launches(products, **options)[-1]
    assert isinstance(launch, SsimLaunch)
    return launch


def names(launch: Launch) -> List[str]:
    return [kernel.name for kernel in launch.kernels]


# ------------------------------------------------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("launch", "key"),
    [
        (first(), "mono half bilinear u8 fp16 intensity:uint8+dolp:uint8+aolp:uint8"),
        (
            first("stokes", "12p", sensor=COLOR, co_sited=False, dtype="float32"),
            "color half own-site mhc 12p fp32 stokes:float32",
        ),
        (first("ssim", **FULL), "mono full adaptive u8 fp32 sums:uint16"),
        (launches(rotate=90)[1], "transform mono fp16 float16 by-columns intensity:uint8+dolp:uint8+aolp:uint8"),
        (similarity(), "ssim uint16 to uint8, 11 taps"),
        (similarity("ssim", ssim_stride=2, ssim_window=7), "ssim uint16 to means only, 7 taps, stride 2"),
    ],
)
def test_keys_of_measured_schedules(launch: Launch, key: str) -> None:
    """Files of measured schedules name launches by them: another key loses what users measured."""
    assert launch.key == key


def test_launches_of_a_frame() -> None:
    assert [type(launch) for launch in launches()] == [PolarizationLaunch]
    mosaic, geometry, last = launches("dolp,ssim", rotate=90, scale=2)
    assert isinstance(mosaic, PolarizationLaunch)
    assert isinstance(geometry, GeometryLaunch)
    assert isinstance(last, SsimLaunch)
    assert mosaic.dtypes == {"differences": "float32", "means": "float32", "excesses": "float32"}
    assert geometry.dtypes == {"dolp": "uint8", "sums": "uint16"}
    assert (last.width, last.height) == (512, 612)


#: Options, and whether a kernel adds up in integers what SSIM compares; else half precision is not enough.
PRECISE: Dict[str, Any] = {
    "co-sited": ({}, True),
    "own site": ({"co_sited": False}, True),
    "own site, with images of angles": ({"co_sited": False, "products": ("angle_0", "ssim")}, True),
    "bilinear": ({**FULL, "demosaic": "bilinear"}, False),
    "ADR": (FULL, False),
    "ADR at half resolution": ({"demosaic": "adaptive"}, False),
    "gradient": ({**FULL, "demosaic": "gradient"}, False),
    "gradient at half resolution": ({"demosaic": "gradient"}, False),
    "colors by a map": ({"products": ("dolp_color", "ssim")}, False),
    "turned": ({"rotate": 90}, False),
    "corrected": ({"calibration": True}, False),
    "bilinear, corrected": ({**FULL, "demosaic": "bilinear", "calibration": True}, False),
}
WITH_SSIM = ("intensity", "dolp", "ssim")


@pytest.mark.parametrize("mode", ["consistency", "temporal", "reference"])
@pytest.mark.parametrize("sensor", [MONO, COLOR])
@pytest.mark.parametrize("name", PRECISE)
def test_half_precision_with_ssim_takes_sums_in_integers(name: str, sensor: str, mode: str) -> None:
    options, is_enough = PRECISE[name]
    options = {"products": WITH_SSIM, "size": SMALL, "sensor": sensor, **options}
    if "calibration" in options:
        options["calibration"] = ideal_calibration(get_sensor(sensor), SMALL[::-1])
    assert first(ssim_mode=mode, **options).half_precision == is_enough
    assert first(ssim_mode=mode, precision="fp16", **options).half_precision  # whether or not it is
    assert not first(ssim_mode=mode, precision="fp32", **options).half_precision
    assert first(**{**options, "products": ("intensity", "dolp", "dolp_color")}).half_precision, "without SSIM"
    assert not first(raw_format="12p", ssim_mode=mode, **options).half_precision


def test_bytes_in_words_of_16_bit_are_not_added_up_in_integers_in_color() -> None:
    assert first(WITH_SSIM, "u16", bit_depth=8, sensor=MONO).half_precision
    assert not first(WITH_SSIM, "u16", bit_depth=8, sensor=COLOR).half_precision


def test_narrow_windows_compare_floats() -> None:
    """They do not average the rounding of images of 16-bit integers."""

    def compared(**options: Any) -> Tuple[str, bool]:
        launch = first(WITH_SSIM, **options)
        return launch.dtypes["sums"], launch.half_precision

    assert compared() == compared(ssim_window=5) == compared(ssim_window=15, ssim_sigma=5) == ("uint16", True)
    assert compared(ssim_window=3) == compared(ssim_sigma=0.5) == ("float32", False)
    assert compared(ssim_window=3, precision="fp16") == ("uint16", True)


def test_planes_of_a_geometry() -> None:
    def planes(products: Any = WITH_SSIM, **options: Any) -> set:  # type: ignore[type-arg]
        return set(first(products, rotate=90, **options).dtypes.values())

    assert planes("intensity,dolp") == {"float16"}
    assert planes() == planes(ssim_mode="temporal") == {"float32"}
    assert planes(ssim_mode="temporal", precision="fp16") == {"float16"}
    assert planes("intensity,dolp", precision="fp32") == {"float32"}
    assert planes("intensity,dolp", raw_format="12p") == planes("intensity,dolp", raw_format="u16") == {"float32"}
    assert planes("intensity,dolp", raw_format="12p", precision="fp16") == {"float16"}


def test_bytes_of_a_frame() -> None:
    """By hand: 5 MB of raw bytes; outputs of a quarter of the pixels; a calibration of 4 bytes a pixel."""
    pixels = 2448 * 2048
    assert (first().read_bytes, first().written_bytes) == (pixels, 3 * pixels // 4)
    assert first(raw_format="12p", bit_depth=12).read_bytes == 3 * pixels // 2
    assert first("stokes", sensor=COLOR, dtype="float32").written_bytes == 3 * 4 * pixels // 4
    assert replace(first(), calibrated=True).read_bytes == 5 * pixels
    turned = launches(rotate=90)[1]
    assert isinstance(turned, GeometryLaunch)
    assert (turned.read_bytes, turned.map_bytes) == (6 * pixels // 4, 0)
    assert (similarity().read_bytes, similarity().written_bytes) == (pixels, pixels // 4)


# -------------------------------------------------------------------------------------------------------------- kernels


def test_kernels_of_shipped_defaults() -> None:
    assert names(first(LIVE)) == ["mono_half", "tile"]
    assert names(replace(first(LIVE), calibrated=True)) == ["mono_half_calibrated", "tile"]
    assert names(first(LIVE, sensor=COLOR)) == names(first(sensor=COLOR, co_sited=False)) == ["color_strip", "tile"]
    assert names(replace(first(LIVE, sensor=COLOR), calibrated=True)) == ["tile"]
    assert names(first(**FULL, demosaic="gradient")) == ["mono_full", "tile"]
    assert names(first(**FULL)) == names(first("dolp_color")) == names(first(debias=True)) == ["tile"]
    assert names(first(raw_format="u8", sensor=COLOR, size=(2444, 2048))) == ["tile"], "a width of 8 pixels"
    assert names(launches(scale=2)[1]) == ["transform"]
    assert names(similarity()) == ["ssim_tensor", "ssim_registers"]


#: The live node's types.
FLOAT = {"intensity": "uint8", "preview": "uint8", "dolp": "float32", "aolp": "float32", "ssim_map": "float32"}
DEFAULTS: Dict[str, Tuple[Launch, ...]] = {
    "mono": launches(f"{LIVE},ssim_map,ssim", dtype=FLOAT),
    "mono, bytes": launches(f"{LIVE},ssim_map,ssim"),
    "mono, 12 bit": launches(f"{LIVE},ssim_map,ssim", "u16", bit_depth=12, dtype=FLOAT),
    "color": launches(f"{LIVE},ssim_map,ssim", sensor=COLOR, dtype=FLOAT),
    "color, own site": launches("angle_0,angle_45,angle_90,angle_135", sensor=COLOR, co_sited=False),
    "full": launches(**FULL),
    "full, color": launches(sensor=COLOR, **FULL),
    "bilinear": launches(demosaic="bilinear", **FULL),
    "rectified": launches(rectify=lens((SIZE[1], SIZE[0])))[1:],
    "calibrated": (replace(first(LIVE), calibrated=True),),
}


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_fit_every_device(name: str, device: Device) -> None:
    for launch in DEFAULTS[name]:
        _, schedule = next(choose(launch, device))
        kernel = launch.kernel(schedule)
        shared, registers = kernel.shared_bytes(launch, schedule), kernel.registers(launch, schedule, device)
        assert shared <= (48 << 10 if device.capability < 80 else device.shared_per_block)
        assert schedule.threads % 32 == 0
        least = 0.15 if schedule.kernel == "ssim_tensor" else 0.25 if device.capability >= 90 else 0.3
        assert occupancy(device, schedule.threads, registers, shared) >= least, schedule


def test_registers_by_hand() -> None:
    """64 Ki registers of a multiprocessor over the warps of its resident blocks, in steps of 8 a thread."""
    assert register_bound(128, 640) == 96
    assert register_bound(64, 1024) == 64
    assert register_bound(256, 512) == 128
    assert register_bound(1024, 1) == 64
    assert resident_blocks(XAVIER, 128, 96, 0) == 5
    assert resident_blocks(XAVIER, 128, 32, 48 << 10) == 2
    assert resident_blocks(XAVIER, 128, 32, 64 << 10) == 1
    assert occupancy(XAVIER, 128, 96, 0) == 20 / 64


def test_no_schedule_fits() -> None:
    tiny = replace(XAVIER, name="tiny", shared_per_block=256)
    geometry = launches(scale=2)[1]
    for launch, kernel in ((similarity(), "ssim_registers"), (first(**FULL), "tile"), (geometry, "transform")):
        with pytest.raises(
            ScheduleError, match=rf"^{kernel} on tiny: needs \d+ bytes of shared memory, a block has 256"
        ):
            next(choose(launch, tiny))


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("window", [3, 11, 15])
def test_every_size_has_a_schedule_of_ssim(device: Device, window: int) -> None:
    """The widest sensors have 14192 columns; blocks of more than 352 threads do not fit twice on a multiprocessor."""
    for width in (16, 48, 1224, 5320, 10880, 10896, 14192, 65520):
        launch = replace(similarity("ssim", size=(width, 10640), ssim_window=window, **FULL), source="float32")
        _, chosen = next(choose(launch, device))
        assert chosen.tile_x + window - 1 <= chosen.threads <= 352


def test_what_spills_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first schedule that keeps everything in registers; of six that do not, the one that spills least.

    Those that differ only in threads spill alike: one of them is tried.
    """
    loaded: List[Schedule] = []
    full = first(**FULL)
    offered = list(islice(choose(full, TURING), 30))

    def compiled(*spills: int) -> int:
        """Which schedule is taken where these spill so many bytes, and all others as many as the last one."""

        class Compiled:
            def __init__(self, _: Any, __: Launch, schedule: Schedule, ___: int) -> None:
                loaded.append(schedule)
                self.schedule, self.spilled_bytes = schedule, spills[min(len(loaded), len(spills)) - 1]

        loaded.clear()
        monkeypatch.setattr(launch_module, "CompiledLaunch", Compiled)
        driver = cast(Any, SimpleNamespace(device=TURING))
        made = compile_launch(driver, full, iter(offered))
        return [schedule for _, schedule in offered].index(made.schedule)

    def registers(schedule: Schedule) -> int:
        return full.kernel(schedule).registers(full, schedule, TURING)

    assert (compiled(0), len(loaded)) == (0, 1)
    assert (compiled(16), len(loaded)) == (0, 6)
    threads = {(row.kernel, row.tile_x, row.tile_y, row.rows, registers(row)) for row in loaded}
    assert len(threads) == 6
    assert (compiled(16, 8, 12), len(loaded)) == (offered.index(("solved", loaded[1])), 6)
    offered[0] = "measured", offered[0][1]
    assert (compiled(16), len(loaded)) == (0, 1), "what was measured is not passed over"


# -------------------------------------------------------------------------------------------------------------- devices


def described(name: str, capability: Tuple[int, int], multiprocessors: int, **more: Any) -> Device:
    """A device by what CUDA says of it."""
    numbers = {"multiProcessorCount": multiprocessors, "integrated": 1, "memoryBusWidth": 256}
    limits = {"sharedMemPerBlockOptin": 100, "sharedMemPerMultiprocessor": 200, "regsPerMultiprocessor": 65536}
    limits.update(maxThreadsPerMultiProcessor=2048, maxBlocksPerMultiProcessor=16)
    properties = {"name": name.encode(), "major": capability[0], "minor": capability[1], **numbers, **limits, **more}
    return from_properties(properties, more.get("model", ""))


def test_devices_are_recognized() -> None:
    assert described("Xavier", (7, 2), 8) == XAVIER
    assert described("Orin", (8, 7), 16) == ORIN
    assert described("NVIDIA H200", (9, 0), 132, integrated=0) == H200
    assert described("Orin", (8, 7), 8, model="NVIDIA Jetson Orin NX Developer Kit").name == "orin-nx"
    assert described("Orin", (8, 7), 8, model="NVIDIA Jetson Orin Nano").name == "orin-nano"
    assert described("Orin", (8, 7), 8, totalGlobalMem=16e9).name == "orin-nx"
    assert described("Orin", (8, 7), 8, totalGlobalMem=8e9).name == "orin-nano"
    other = described("NVIDIA RTX A2000", (8, 6), 26, integrated=0, memoryClockRate=6_000_000, memoryBusWidth=192)
    assert (other.name, other.arch) == ("nvidia-rtx-a2000-26", "sm_86")
    assert (other.maps_host, other.bandwidth_gbs) == (False, 288)


# --------------------------------------------------------------------------------------------------- measured schedules


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a device on which nothing was measured, and for which nothing is shipped."""
    monkeypatch.setenv(TUNED_VARIABLE, str(tmp_path / "tuned"))
    return tmp_path / "tuned" / "turing.json"


def last(launch: Launch, device: Device = TURING) -> Schedule:
    """What would be taken last."""
    *_, (_, schedule) = choose(launch, device)
    return schedule


@pytest.mark.parametrize("launch", [first(), similarity()], ids=["polarization", "ssim"])
def test_a_measured_schedule_comes_first_and_that_of_the_nearest_size(file: Path, launch: Launch) -> None:
    (basis, solved), measured = next(choose(launch, TURING)), last(launch)
    assert basis == "solved"
    assert measured != solved
    save_schedule(launch, TURING, Measured(measured, 2.5))
    assert next(choose(launch, TURING)) == ("measured", measured)
    assert next(choose(launch, TURING, 2))[0] == "solved", "of batches, nothing was measured"
    smaller = replace(launch, height=launch.size[1] // 2)  # type: ignore[type-var]
    assert next(choose(smaller, TURING))[1] == measured
    save_schedule(smaller, TURING, Measured(solved, 1.5))
    assert next(choose(smaller, TURING))[1] == solved
    assert next(choose(launch, TURING))[1] == measured
    save_schedule(launch, TURING, Measured(solved, 2.25))  # another day
    assert [row["us"] for row in json.loads(file.read_text(encoding="utf-8"))] == [1.5, 2.25]
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # nothing half written is left
    schedules = [schedule for _, schedule in choose(launch, TURING)]
    assert len(set(schedules)) == len(schedules), "each schedule once"


@pytest.mark.parametrize("sizes", [(0, 0, 0, 0), (1 << 20,) * 4, (32, 0, 0, 1), (64, 7, 3, 2)])
@pytest.mark.parametrize("kernel", ["tile", "no", "ssim_tensor"])
def test_a_schedule_of_no_sense_is_passed_over(file: Path, kernel: str, sizes: Tuple[int, ...]) -> None:
    for launch in (first(), first(**FULL), first(sensor=COLOR, **FULL), similarity()):
        save_schedule(launch, TURING, Measured(Schedule(kernel, *sizes), 1.0))
        assert next(choose(launch, TURING))[0] == "solved"
    assert file.is_file()


def row_of(launch: Launch, schedule: Schedule, **more: Any) -> Dict[str, Any]:
    """What a file says of a schedule."""
    return {"work": launch.key, "size": [*launch.size], "schedule": asdict(schedule), "us": 2.0, **more}


def test_what_this_user_measured_comes_before_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shipped was measured of batches."""
    launch, mono = first(LIVE, sensor=COLOR), first(LIVE)
    other, path = last(launch, H200), tmp_path / "h200.json"
    assert next(choose(launch, H200, 64)) == ("shipped", Schedule("color_strip", 64, 4, rows=16))
    assert next(choose(launch, H200))[0] == "solved"
    path.write_text(json.dumps([row_of(launch, other, frames=64)]), encoding="utf-8")
    monkeypatch.setenv(TUNED_VARIABLE, str(tmp_path))
    assert next(choose(launch, H200, 64)) == ("measured", other)
    assert next(choose(launch, H200))[0] == "solved"
    assert save_schedule(mono, H200, Measured(last(mono, H200), 1.0)) == tuned_path("h200") == path
    assert next(choose(launch, H200, 2)) == ("measured", other), "rows of batches stay"
    assert len(json.loads(path.read_text(encoding="utf-8"))) == 2


def test_where_measured_schedules_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNED_VARIABLE, "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert tuned_path("orin") == tmp_path / "polar_pipeline" / "tuned" / "orin.json"
    monkeypatch.setenv("XDG_DATA_HOME", "here")  # relative
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuned_path("orin") == tmp_path / ".local" / "share" / "polar_pipeline" / "tuned" / "orin.json"
    monkeypatch.setenv("HOME", "nowhere")
    launch = first(LIVE, sensor=COLOR)
    assert next(choose(launch, H200, 64))[0] == "shipped"
    with pytest.raises(FileNotFoundError, match="no home folder; set XDG_DATA_HOME"):
        save_schedule(launch, H200, Measured(last(launch, H200), 1.0))


def test_shipped_schedules_hold() -> None:
    """Each names a kernel of today, on the architecture of its file."""
    for path in shipped_path(XAVIER).parent.glob("*.json"):
        assert path.stem in {device.arch for device in DEVICES.values()}
        for row in json.loads(path.read_text(encoding="utf-8")):
            assert set(row) == {"work", "size", "frames", "schedule", "us"}
            assert row["schedule"]["kernel"] in {kernel.name for kernel in KERNELS}
    for name, (launch, *_) in DEFAULTS.items():
        if name != "rectified":
            assert next(choose(launch, H200, 64))[0] == "shipped", name


@pytest.mark.parametrize("changes", [{"work": None}, {"size": [1]}, {"us": "fast"}, {"us": 10**400}, {"schedule": []}])
def test_a_broken_file_is_an_error_and_stays(file: Path, changes: Dict[str, Any]) -> None:
    row = {**row_of(first(), Schedule("tile", 64, 8)), **changes}
    text = json.dumps([{name: value for name, value in row.items() if value is not None}])
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScheduleError, match=r"turing\.json is not a list of tuned schedules") as caught:
        next(choose(first(), TURING))
    assert str(caught.value).isprintable()
    with pytest.raises(ScheduleError, match=r"turing\.json is not a list of tuned schedules"):
        save_schedule(first(), TURING, Measured(Schedule("tile", 128, 16, 16), 1.0))
    assert file.read_text(encoding="utf-8") == text


def test_files_of_former_versions_are_read(file: Path) -> None:
    """Their schedules had a window and a number of lines, and some named kernels that there are no more."""
    of_old = {"window": "registers", "threads": 64, "tile_x": 4, "tile_y": 0, "rows": 2, "lines": 0}
    rows = [
        {**row_of(launch, Schedule(kernel, 0, 0)), "schedule": {"kernel": kernel, **of_old}}
        for launch, kernel in ((first(), "mono_half"), (first("dolp"), "mono_half_bytes"), (similarity(), "ssim"))
    ]
    file.parent.mkdir()
    file.write_text(json.dumps(rows), encoding="utf-8")
    assert next(choose(first(), TURING)) == ("measured", Schedule("mono_half", 64, 4, rows=2))
    assert next(choose(first("dolp"), TURING))[0] == next(choose(similarity(), TURING))[0] == "solved"
