"""Names of pixel formats: what each means, byte by byte, and which bytes are refused under it."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from named_encodings import ENCODINGS as NAMED
from named_encodings import Named, row_bytes, unpacked

from polar_pipeline.options import make_options
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.messages import ImageMessage
from polar_pipeline.sensor import encodings
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import FrameError

#: Colors of four neighboring pixels of an angle -> a sensor that has them.
SENSORS = {
    "": "IMX250MZR",
    "RGGB": "IMX250MYR",
    "BGGR": "B90 B45 G90 G45 / B135 B0 G135 G0 / G90 G45 R90 R45 / G135 G0 R135 R0",
}


def message(encoding: str, height: int, width: int, step: int, data: bytes) -> ImageMessage:
    return ImageMessage(0, "", height, width, encoding, False, step, np.frombuffer(data, np.uint8))


def decoded(image: ImageMessage, named: Named) -> np.ndarray:
    return messages.to_raw(image, make_options(SENSORS[named.bayer])).unpack().mosaic


def test_the_tables_agree_with_the_list_by_hand() -> None:
    found = {name: (fmt.bits, fmt.packing, fmt.channels, fmt.bayer) for name, fmt in encodings.ENCODINGS.items()}
    of_files = {name: found.pop(name) for name in [*found] if name.startswith(("Angles", "Stokes"))}
    assert found == {name: tuple(row) for name, row in NAMED.items()}
    assert {name: row[2:] for name, row in of_files.items()} == {
        **{f"Angles{bits}": (4, None) for bits in (8, 10, 12, 14, 16)},
        **{f"AnglesRGB{bits}": (12, None) for bits in (8, 10, 12, 14, 16)},
        "Stokes32F": (3, None),
    }
    found.update(of_files)
    assert sum(len(family.members()) for family in encodings.FAMILIES) == len(found)  # none is named twice


#: One name of each kind of pixels: all names of a kind have one format.
KINDS = sorted({named: name for name, named in NAMED.items()}.values())


@given(st.sampled_from(KINDS), st.integers(16, 20), st.integers(16, 70), st.integers(1, 8), st.integers(0))
def test_pixels_are_those_of_the_list(name: str, height: int, width: int, power: int, seed: int) -> None:
    """Random bytes in rows without padding, and in rows that are rounded up."""
    size = row_bytes(name, width)
    for step in (0, size, size + -size % (1 << power)):
        data = np.random.default_rng(seed).integers(0, 256, height * (step or size)).astype(np.uint8).tobytes()
        fields = {"height": height, "width": width, "encoding": name, "is_bigendian": False, "step": step, "data": data}
        wanted, image = unpacked(fields, NAMED[name].bayer), message(name, height, width, step, data)
        if wanted is None:
            with pytest.raises(FrameError, match="not a row of other pixels"):
                decoded(image, NAMED[name])
        else:
            np.testing.assert_array_equal(decoded(image, NAMED[name]), wanted)


@given(st.sampled_from(sorted(NAMED)), st.integers(16, 20), st.integers(16, 700))
def test_bytes_are_refused_under_every_name_of_another_size(name: str, height: int, width: int) -> None:
    size = row_bytes(name, width)
    for other, named in NAMED.items():
        is_unpacked = named.packing in ("p", "packed") and named.channels == 1 and size == 2 * width
        if row_bytes(other, width) == size or is_unpacked:
            continue
        for step in (0, size):
            with pytest.raises(FrameError) as error:
                decoded(message(other, height, width, step, bytes(size * height)), named)
            assert error.value.cause in ("step", "truncated")


@pytest.mark.parametrize(
    ("encoding", "width", "step", "full_scale"),
    [
        ("Mono12p", 2448, 4896, 0xFFF0),  # two bytes a pixel: a driver's unpacked form
        ("Mono12Packed", 2448, 4896, 0xFFF0),
        ("Mono10p", 2448, 4896, 0xFFC0),
        ("Mono12p", 512, 1024, 0xFFF0),
        ("Mono12p", 2448, 3840, 0xFFF),  # rows of 3672 bytes, rounded up to 256
        ("Mono12p", 64, 96, 0xFFF),
        ("Mono12p", 64, 128, None),  # either
        ("Mono12p", 256, 512, None),
        ("Mono12p", 2448, 4900, None),
        ("PolarizedAngles_0d_45d_90d_135d_Mono12p", 1224, 9792, None),
        ("mono8", 2448, 2560, 0xFF),
        ("mono8", 2448, 2560 + 256, None),
        ("mono8", 16, 64, None),  # rgba8 of 16 pixels, or rows rounded up to 64
        ("mono8", 20, 64, 0xFF),
        ("mono8", 100, 100, 0xFF),
        *(("mono8", 100, channels * 100, None) for channels in (2, 3, 4, 6, 8)),  # 16 bit, rgb8, rgba8, rgb16, rgba16
    ],
)
def test_steps(encoding: str, width: int, step: int, full_scale: Any) -> None:
    image = message(encoding, 16, width, step, bytes(16 * step))
    if full_scale is None:
        with pytest.raises(FrameError, match=rf"got {step}$") as error:
            messages.to_raw(image)
        assert error.value.cause == "step"
    else:
        frame = messages.to_raw(image)
        assert (frame.shape, frame.full_scale) == ((16, width), full_scale)


@pytest.mark.parametrize("missing", [-1, 1, 96])
def test_an_image_has_as_many_bytes_as_its_rows(missing: int) -> None:
    """Also the last row has its padding; surplus bytes are no part of an image."""
    with pytest.raises(FrameError, match="need 2048 bytes") as error:
        messages.to_raw(message("mono8", 16, 100, 128, bytes(2048 - missing)))
    assert error.value.cause == ("truncated" if missing > 0 else "step")


#: Names that are refused -> what the error says besides.
REFUSED: Dict[str, str] = {
    "": "the driver has no name",
    "PolarizedStokes_S0_S1_S2_Mono8": "computed",
    "PolarizedDolp_Mono8": "computed",
    "PolarizedADIMono8": "computed",
    "Mono14p": "unpacked only",
    "Mono12pmsb": "high bits",
    "rgb8": "mosaic is lost",
    "8UC3": "mosaic is lost",
    "yuv422": "mosaic is lost",
    "YCbCr422_8_CbYCrY": "mosaic is lost",
    "32FC1": "integers",
    "16SC1": "integers",
    **dict.fromkeys(
        (
            "mono",
            "mono12",
            "MONO8",
            "BayerXY8",
            "Mono12Packed ",
            "Polarized12",
            "PolarizedAngles_0d_45d_90d_135d_Mono10",
        ),
        "",
    ),
}


@pytest.mark.parametrize("encoding", REFUSED)
def test_other_names_are_refused_with_the_reason(encoding: str) -> None:
    with pytest.raises(FrameError, match="encoding must be") as error:
        get_format(encoding)
    assert error.value.cause == "encoding"
    reason = str(error.value).rpartition("got ")[2]
    assert REFUSED[encoding] in reason
    assert (": " in reason) == bool(REFUSED[encoding])
    assert not (REFUSED[encoding] and "did you mean" in reason)


def test_a_misspelled_name_is_answered_with_similar_ones() -> None:
    for encoding, similar in (("mono12", "Mono12"), ("BayerRG12Pakced", "BayerRG12Packed"), ("Mono12pp", "Mono12p")):
        with pytest.raises(FrameError, match=f"got '{encoding}'; did you mean .*{similar}"):
            get_format(encoding)
