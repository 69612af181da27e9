"""Frames of four angle images, against formulas on planes written by hand; from messages and recordings."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest
from calibrations import some_calibration

from polar_pipeline import PRODUCTS, SENSORS, FrameError, Pipeline, RawFrame
from polar_pipeline.options import make_options
from polar_pipeline.quality.statistics import expected_similarity
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import ImageMessage
from polar_pipeline.recordings.source import Recorded
from polar_pipeline.replay.run import replay
from polar_pipeline.sensor.mosaic import Sensor

NAME = "PolarizedAngles_0d_45d_90d_135d_"
SIZE = (24, 40)


#: Where 0, 45, 90 and 135 degrees lie in the tile 90 45 / 135 0.
PLACES = ((1, 1), (0, 1), (0, 0), (1, 0))


def random_angles(top: int, seed: int = 0) -> np.ndarray:
    """(H, W, 4) numbers, an edge in the middle, which interpolation would blur; the first pixel is dark."""
    rng = np.random.default_rng(seed)
    angles = rng.integers(top // 3, top // 2, (*SIZE, 4))
    angles[:, SIZE[1] // 2 :] //= 4
    angles[0, 0] = 0
    return angles


def mosaic_of(angles: np.ndarray) -> np.ndarray:
    """The mosaic by hand."""
    mosaic = np.zeros((2 * SIZE[0], 2 * SIZE[1]), np.uint8 if angles.max() < 256 else np.uint16)
    for index, (row, column) in enumerate(PLACES):
        mosaic[row::2, column::2] = angles[..., index]
    return mosaic


def encoded(angles: np.ndarray, encoding: str, stamp_ns: int = 7) -> ImageMessage:
    """The message of a camera, its bits put one after the other."""
    if encoding.endswith("12p"):
        bits = (angles.reshape(SIZE[0], -1, 1) >> np.arange(12)) & 1
        data = np.packbits(bits.reshape(SIZE[0], -1).astype(np.uint8), axis=1, bitorder="little")
    else:
        data = angles.astype("<u2" if encoding.endswith("16") else "u1").view(np.uint8).reshape(SIZE[0], -1)
    return ImageMessage(stamp_ns, "camera", *SIZE, encoding, False, data.shape[1], data.reshape(-1))


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize("mode", ["consistency", "temporal"])
def test_every_product_is_that_of_the_mosaic_not_co_sited(backend: str, sensor: str, mode: str) -> None:
    """Noise, SSIM and colors too: bit by bit, and for every frame of a stream."""
    color = SENSORS[sensor].is_color
    options: Dict[str, Any] = {"sensor": sensor, "ssim_mode": mode, "backend": backend, "products": tuple(PRODUCTS)}
    encoding = f"{NAME}BayerRG8" if color else f"{NAME}Mono8"
    with Pipeline(**options) as pipeline, Pipeline(**options, co_sited=False) as plain:
        for seed in range(3):
            angles = random_angles(255, seed)
            angles[5, 7, 2] = angles[20, 3, 0] = 255
            raw = messages.to_raw(encoded(angles, encoding), pipeline.options)
            got, want = pipeline(raw), plain(mosaic_of(angles))
            assert got.invalid == want.invalid
            assert got.invalid[0] == 2  # saturation is of one pixel only
            np.testing.assert_array_equal(got.blocks, want.blocks)
            for name in PRODUCTS:
                np.testing.assert_array_equal(got[name], want[name], err_msg=name)
        np.testing.assert_array_equal(pipeline(mosaic_of(angles))["dolp"].shape, SIZE)  # and mosaics as ever
        with Pipeline(**options) as other:
            np.testing.assert_array_equal(pipeline(mosaic_of(angles))["stokes"], other(mosaic_of(angles))["stokes"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resolution": "full"}, "set: resolution$"),
        ({"roi_offset": (1, 0)}, "set: roi_offset$"),
        ({"flip": (False, True), "roi_offset": (2, 2)}, "set: roi_offset, flip$"),
        ({"calibration": some_calibration(SENSORS["IMX250MZR"])}, "set: calibration$"),
    ],
)
def test_options_of_a_mosaic_are_refused(options: Dict[str, Any], words: str) -> None:
    frame = RawFrame.of_angles(random_angles(255).astype(np.uint8), SENSORS["IMX250MZR"])
    with Pipeline(backend="cpu", **options) as pipeline:
        for use in (pipeline, pipeline.is_ready, pipeline.prepare):
            with pytest.raises(FrameError, match=words) as error:
                use(frame)
            assert error.value.cause == "encoding"
        assert pipeline(mosaic_of(random_angles(255)))["dolp"].any()


@pytest.mark.parametrize(
    ("encoding", "sensor", "words"),
    [
        (f"{NAME}Mono8", "IMX250MYR", "monochrome, those of sensor IMX250MYR are RGGB"),
        (f"{NAME}BayerRG8", "IMX250MZR", "RGGB, those of sensor IMX250MZR are monochrome"),
        ("PolarizedQuadBG8", "IMX250MYR", "BGGR, those of sensor IMX250MYR are RGGB"),
    ],
)
def test_the_angles_of_another_sensor_are_refused(encoding: str, sensor: str, words: str) -> None:
    with pytest.raises(FrameError, match=words) as error:
        messages.to_raw(encoded(random_angles(255), encoding), make_options(sensor))
    assert error.value.cause == "encoding"


@pytest.mark.parametrize(
    ("angles", "cause"),
    [
        (np.zeros((24, 40), np.uint8), "size"),
        (np.zeros((24, 40, 3), np.uint8), "size"),
        (np.zeros((7, 40, 4), np.uint8), "size"),
        (np.zeros((24, 40, 4)), "type"),
        (np.zeros((24, 40, 4), np.int8), "type"),
        (np.ma.zeros((24, 40, 4), np.uint8), "type"),
        ([[[0] * 4] * 40] * 24, "type"),
    ],
)
def test_arrays_that_are_no_angles_are_refused(angles: Any, cause: str) -> None:
    with pytest.raises(FrameError) as error:
        RawFrame.of_angles(angles, SENSORS["IMX250MZR"])
    assert error.value.cause == cause


def test_a_custom_tile_has_its_own_places() -> None:
    sensor = Sensor("turned", ((0, 135), (45, 90)))
    angles = random_angles(255).astype(np.uint8)
    frame = RawFrame.of_angles(angles, sensor, 200)
    assert (frame.full_scale, frame.shape, frame.is_split) == (200, (48, 80), True)
    np.testing.assert_array_equal(frame.mosaic[:2, :2], angles[0, 0][[[0, 3], [1, 2]]])
    with Pipeline(sensor, ("angle_135",), backend="cpu") as pipeline:
        np.testing.assert_allclose(pipeline(frame)["angle_135"], angles[..., 3] / np.float32(200), atol=1e-6)


def test_no_angle_was_interpolated_to_be_diagnosed() -> None:
    frame = RawFrame.of_angles(random_angles(255).astype(np.uint8), SENSORS["IMX250MZR"])
    with Pipeline(demosaic="adaptive", backend="cpu") as pipeline, pytest.raises(
        ValueError, match="angle images are not interpolated"
    ):
        pipeline.debug(frame)


def test_the_similarity_that_noise_leaves_is_that_of_single_pixels() -> None:
    frame = RawFrame.of_angles(random_angles(255).astype(np.uint8), SENSORS["IMX250MZR"])
    plain = RawFrame(frame.mosaic, 255)
    split = expected_similarity(make_options(), frame, 20, 12)
    assert split == expected_similarity(make_options(co_sited=False), plain, 20, 12)
    assert split < expected_similarity(make_options(), plain, 20, 12)


def test_recordings_of_them_are_replayed() -> None:
    angles = random_angles(255)
    records: List[Recorded] = []
    for stamp, encoding in ((10, f"{NAME}Mono8"), (20, f"{NAME}Mono8"), (30, "PolarizedDolp_Mono8")):
        cdr = bytes(messages.encode_message(encoded(angles, encoding, stamp)))
        records.append(Recorded(stamp, messages.IMAGE, cdr))
    with Pipeline(products=("dolp", "ssim"), backend="cpu") as pipeline:
        summary = replay(records, 3, pipeline)
    assert len(summary.stamps) == 2
    assert "computed" in summary.rejected["encoding"][0]
    i0, i45, i90, i135 = np.moveaxis(angles / 255, -1, 0)[:, 1:]  # without the dark pixel
    expected = np.hypot(i0 - i90, i45 - i135) / (i0 + i45 + i90 + i135) * 2
    np.testing.assert_allclose(summary.samples[0].products["dolp"][1:], expected, atol=1e-6)


def test_the_lens_calibration_of_the_message_is_that_of_the_outputs() -> None:
    """Its pixels are those of the products, where those of a mosaic are twice as many along each side."""
    rows = (np.zeros(5), np.array([50.0, 0, 20, 0, 60, 12, 0, 0, 1]), np.eye(3).ravel(), np.eye(3, 4).ravel())
    info = messages.CameraInfo(0, "", *SIZE, "plumb_bob", *rows)
    options = make_options(products="dolp")
    frame = messages.to_raw(encoded(random_angles(255), f"{NAME}Mono8"), options)
    cdr = messages.encode_camera_info(info, 0, "")
    (found,) = messages.encode_camera_infos(cdr, options, frame, ["polarization/camera_info"], 5, "camera").values()
    got = messages.decode_camera_info(found)
    assert (got.height, got.width, got.stamp_ns, got.frame_id) == (*SIZE, 5, "camera")
    np.testing.assert_allclose(got.k, rows[1], atol=1e-12)
