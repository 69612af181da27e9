"""What picture files state about their pixels, and names that tell of angle images: applied, warned about or refused.

Files are put together here, byte by byte; the truth is the light from which their pixels were computed.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple, Union

import cv2
import numpy as np
import pytest
from support import on_cpu

from polar_pipeline import cli
from polar_pipeline.recordings.contents import Stated
from polar_pipeline.recordings.limits import SourceError
from polar_pipeline.recordings.messages import to_raw
from polar_pipeline.recordings.picture_tags import read_tags
from polar_pipeline.recordings.rawpicture import decode_picture, read_picture
from polar_pipeline.recordings.source import open_source
from polar_pipeline.sensor.frames import FrameError

#: Tile of an IMX250MZR, in degrees.
TILE = np.array([[90, 45], [135, 0]])
S0, DOLP, AOLP = 0.75, 0.5, 30.0


def light(full_scale: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A mosaic of constant light, by Malus' law."""
    angles = np.radians(np.tile(TILE, (height // 2, width // 2)))
    samples = S0 / 2 * (1 + DOLP * np.cos(2 * (angles - np.radians(AOLP))))
    return np.rint(full_scale * samples).astype(np.uint8 if full_scale < 256 else np.uint16)


def main(arguments: Sequence[str]) -> int:
    """The tool's exit code; it computes on the CPU."""
    return cli.main(on_cpu(arguments))


def processed(path: Path, *arguments: str) -> Tuple[float, float, float]:
    """S0, DoLP and AoLP in degrees of a file, as `process` writes them."""
    out = path.parent / "out"
    assert main(["process", str(path), "-o", str(out), "--format", "npy", "--products", "stokes", *arguments]) == 0
    s0, s1, s2 = np.median(np.load(out / f"{path.stem}_stokes.npy")[4:-4, 4:-4], (0, 1))
    return float(s0), float(np.hypot(s1, s2) / s0), float(np.degrees(np.arctan2(s2, s1) / 2)) % 180


#: S0, DoLP and AoLP within the rounding to a level of 8 bit, and the same of 10 bit and more.
TRUTH_8 = [pytest.approx(S0, abs=4e-3), pytest.approx(DOLP, abs=6e-3), pytest.approx(AOLP, abs=0.5)]
TRUTH = [pytest.approx(S0, abs=1e-3), pytest.approx(DOLP, abs=2e-3), pytest.approx(AOLP, abs=0.1)]


# ------------------------------------------------------------------------------------------------------------------ PNM


def pgm(pixels: np.ndarray, maximum: int, comment: bytes = b"") -> bytes:
    head = b"P5\n%b%d %d\n%d\n" % (comment, pixels.shape[1], pixels.shape[0], maximum)
    return head + pixels.astype(">u2" if maximum > 255 else "u1").tobytes()


@pytest.mark.parametrize("maximum", [255, 1023, 4095, 16383, 65535])
def test_the_maxval_of_pgm_is_full_scale(maximum: int, tmp_path: Path) -> None:
    (tmp_path / "raw.pgm").write_bytes(pgm(light(maximum), maximum, b"# by a camera 12 34\n#\n"))
    assert [*processed(tmp_path / "raw.pgm")] == (TRUTH_8 if maximum == 255 else TRUTH)


def test_pgm_as_text_is_refused() -> None:
    with pytest.raises(FrameError, match=r"PGM \(binary, P5\)") as caught:
        decode_picture(b"P2 2 2\n255\n1 2 3 4\n")
    assert caught.value.cause == "file"


@pytest.mark.parametrize("maximum", [1, 15, 254, 256, 300, 4096, 65534, 65536, 0])
def test_another_maxval_is_refused(maximum: int) -> None:
    with pytest.raises(FrameError, match=f"maxval of a PGM file must be 255, 1023, .* got {maximum}") as caught:
        decode_picture(pgm(np.zeros((48, 64)), maximum))
    assert caught.value.cause == "type"


def test_pgm_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(FrameError, match="states numbers up to 4095, and holds 4096"):
        decode_picture(pgm(np.full((48, 64), 4096), 4095))
    data = pgm(light(255), 255)
    with pytest.raises(FrameError, match="need 3072 bytes behind the header, got 3071"):
        decode_picture(data[:-1])
    with pytest.raises(FrameError, match="only single pictures"):
        decode_picture(data + data)
    with pytest.raises(FrameError, match="got 3073"):
        decode_picture(data + b"\n")  # it may be the last pixel, if the header is longer than it looks
    np.testing.assert_array_equal(pixels_of(data.replace(b"\n", b"\r\n")), light(255))


# ----------------------------------------------------------------------------------------------------------------- TIFF

Number = Union[int, Tuple[int, ...]]


def tiff(pages: Sequence[Tuple[np.ndarray, Dict[int, Number]]], order: str = "<") -> bytes:
    """An uncompressed TIFF file of pictures with additional tags, which are SHORT."""
    data = bytearray((b"II" if order == "<" else b"MM") + struct.pack(order + "H", 42))
    link = len(data)
    data += bytes(4)
    for pixels, more in pages:
        body = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
        strip = len(data)
        data += body + bytes(-len(body) % 8)
        height, width = pixels.shape
        numbers: Dict[int, Number] = {256: width, 257: height, 258: 8 * pixels.itemsize, 259: 1, 262: 1, 277: 1}
        numbers.update({278: height, **more})
        kinds: Dict[int, Tuple[str, Number]] = {tag: ("H", number) for tag, number in numbers.items()}
        kinds.update({273: ("I", strip), 279: ("I", len(body))})
        rows: List[Tuple[int, bytes]] = []
        for tag, (kind, number) in kinds.items():
            values = number if isinstance(number, tuple) else (number,)
            value = struct.pack(f"{order}{len(values)}{kind}", *values)
            value += bytes(4 - len(value))
            rows.append((tag, struct.pack(f"{order}HHI", tag, 3 if kind == "H" else 4, len(values)) + value))
        struct.pack_into(order + "I", data, link, len(data))
        data += struct.pack(order + "H", len(rows)) + b"".join(row for _, row in sorted(rows))
        link = len(data)
        data += bytes(4)
    return bytes(data)


def pixels_of(data: bytes) -> np.ndarray:
    return to_raw(decode_picture(data)).unpack().mosaic


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("full_scale", [255, 65535])
def test_plain_tiff(order: str, full_scale: int) -> None:
    pixels = light(full_scale)
    image = decode_picture(tiff([(pixels, {274: 1})], order))
    assert (image.encoding, image.warnings) == (f"mono{8 * pixels.itemsize}", ())
    np.testing.assert_array_equal(to_raw(image).unpack().mosaic, pixels)


def test_bigtiff_is_refused() -> None:
    for magic in (b"II+\0", b"MM\0+"):
        with pytest.raises(FrameError, match="not BigTIFF") as caught:
            decode_picture(magic + bytes(60))
        assert caught.value.cause == "file"


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("full_scale", [255, 65535])
def test_a_turned_tiff_is_refused(order: str, orientation: int, full_scale: int, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "raw.tif"
    path.write_bytes(tiff([(light(full_scale), {274: orientation})], order))
    assert main(["process", str(path), "-o", str(tmp_path / "out")]) == 1
    assert f"orientation (tag 274) must be 1, got {orientation}: save the mosaic as it was" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_later_pages_state(tmp_path: Path) -> None:
    """Pages of different full scales are refused; a page that lost details is warned about."""
    path = tmp_path / "in.tif"
    for maxima in ((4095, 1023), (0, 4095)):
        path.write_bytes(tiff([(light(1023), {281: maximum} if maximum else {}) for maximum in maxima]))
        with open_source(path) as source, pytest.raises(FrameError, match="different full scales"):
            next(source.records).image()
    path.write_bytes(tiff([(light(255), {259: compression}) for compression in (1, 1, 7)]))
    assert [row.cause for row in read_tags(path.read_bytes()).warnings] == ["jpeg"]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".pgm", ".bmp"])
def test_pages_of_tiff_are_read_whatever_the_suffix(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"raw{suffix}"
    path.write_bytes(tiff([(light(255) // k, {}) for k in (1, 2, 3)]))
    with open_source(path) as source:
        images = [record.image() for record in source.records]
    for k, image in enumerate(images, 1):
        np.testing.assert_array_equal(image.data.reshape(48, 64), light(255) // k)
    assert len(images) == 3


@pytest.mark.parametrize("kind", [1, 4])
def test_previews_and_masks_are_refused(kind: int, tmp_path: Path, capsys: Any) -> None:
    pages: List[Tuple[np.ndarray, Dict[int, Number]]] = [(light(255), {}), (light(255), {254: kind})]
    (tmp_path / "raw.tif").write_bytes(tiff(pages))
    assert main(["process", str(tmp_path / "raw.tif"), "-o", str(tmp_path / "out")]) == 1
    assert "a preview or mask (tag 254)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [0, 2])
@pytest.mark.parametrize("count", [2, 4, 5])
def test_each_page_is_a_frame(count: int, kind: int, tmp_path: Path) -> None:
    pages: List[Tuple[np.ndarray, Dict[int, Number]]] = [(light(255), {254: kind})] * count
    (tmp_path / "raw.tif").write_bytes(tiff(pages))
    with open_source(tmp_path / "raw.tif") as source:
        images = [record.image() for record in source.records]
    assert [image.frame_id for image in images] == [f"raw_{k:04d}" for k in range(count)]
    assert all(np.array_equal(image.data.reshape(48, 64), light(255)) for image in images)


@pytest.mark.parametrize("description", [b"ImageJ=1.54f\nimages=3\nslices=3\n\0", b'{"shape": [3, 48, 64]}\0'])
def test_stacks_behind_one_page_are_refused(description: bytes, tmp_path: Path) -> None:
    """ImageJ above 4 GB and tifffile with `truncate` write one page for all pictures of a stack."""
    (tmp_path / "0.tif").write_bytes(tiff([(np.zeros((48, 64), np.uint8), {})]) + description)
    with pytest.raises(FrameError, match="several pictures"):
        read_picture(tmp_path / "0.tif")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({258: 12}, "bits"),
        ({258: (16, 8)}, "bits .* got several numbers"),
        ({262: 0}, "photometric interpretation .* must be 1 or 2, got 0"),
        ({262: 3}, "photometric interpretation"),
        ({262: 32803}, "photometric interpretation"),
        ({266: 2}, "fill order"),
        ({277: 2}, "samples per pixel"),
        ({259: 34933}, "compression"),  # of PNG
        ({277: 3, 284: 2}, "planar configuration"),
        ({50714: 240}, "black level .* must be 0, got 240"),
        ({50714: (64, 65)}, "black level"),
        ({50712: (0, 1)}, "table of levels"),
        ({339: 2}, "sample format"),
    ],
)
def test_tags_of_other_pixels_are_refused(more: Dict[int, Number], message: str) -> None:
    with pytest.raises(FrameError, match=message) as caught:
        decode_picture(tiff([(light(65535), more)]))
    assert caught.value.cause == "type"


def test_the_largest_sample_of_tiff_is_full_scale(tmp_path: Path) -> None:
    (tmp_path / "raw.tif").write_bytes(tiff([(light(4095), {281: 4095})]))
    assert [*processed(tmp_path / "raw.tif")] == TRUTH
    with pytest.raises(FrameError, match="states numbers up to 4095"):
        decode_picture(tiff([(light(65535), {281: 4095})]))
    assert decode_picture(tiff([(light(65535), {281: int(light(65535).max())})])).encoding == "mono16"  # a statistic
    high = decode_picture(tiff([(light(4095) << 4, {281: 65520})]))
    assert (to_raw(high).full_scale, high.warnings) == (65520, ())
    (warning,) = decode_picture(tiff([(light(4095) << 4, {281: 65000})])).warnings
    assert (warning.cause, "--bit-depth" in warning.text) == ("bits", True)


def test_damaged_tiff_is_refused() -> None:
    data = tiff([(light(255), {})])
    for end in range(4, len(data), 7):
        with pytest.raises(FrameError):
            decode_picture(data[:end])


@pytest.mark.parametrize("tag", [262, 274])
def test_tags_of_several_numbers_are_refused(tag: int) -> None:
    with pytest.raises(FrameError) as caught:
        decode_picture(tiff([(light(65535), {tag: (1, 3)})]))
    assert caught.value.cause in ("file", "type")


# --------------------------------------------------------------------------------------------------------- JPEG and PNG


def jpeg(pixels: np.ndarray) -> bytes:
    return bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 95])[1])


def exif(orientation: int, order: str) -> bytes:
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    return head + struct.pack(order + "HHHIHHI", 1, 274, 3, 1, orientation, 0, 0)


def test_jpeg_is_warned_about(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "raw.jpg").write_bytes(jpeg(light(255)))
    for command in (["process", "-o", str(tmp_path)], ["layout"]):
        main([command[0], str(tmp_path / "raw.jpg"), *command[1:]])
        assert "jpeg: JPEG destroys the polarization" in capsys.readouterr().err
        assert main([command[0], str(tmp_path / "raw.jpg"), *command[1:], "--strict"]) == 1


def test_jpeg_in_tiff_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "raw.tif"
    if not cv2.imwrite(str(path), light(255), [cv2.IMWRITE_TIFF_COMPRESSION, 7]):
        pytest.skip("this OpenCV does not write JPEG in TIFF")
    assert [row.cause for row in read_picture(path).warnings] == ["jpeg"]
    assert cv2.imwrite(str(path), light(255), [cv2.IMWRITE_TIFF_COMPRESSION, 5])
    assert read_picture(path).warnings == ()


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_in_exif(order: str) -> None:
    data = jpeg(light(255))
    png = bytes(cv2.imencode(".png", light(65535))[1])
    for orientation in (1, 3, 6):
        segment = b"Exif\0\0" + exif(orientation, order)
        files = (
            data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:],
            with_chunk(png, b"eXIf", exif(orientation, order)),
        )
        for turned, plain in zip(files, (data, png)):
            if orientation == 1:
                np.testing.assert_array_equal(decode_picture(turned).data, decode_picture(plain).data)
                continue
            with pytest.raises(FrameError, match=f"orientation .* got {orientation}: save the mosaic") as caught:
                decode_picture(turned)
            assert caught.value.cause == "type"


def with_chunk(png: bytes, kind: bytes, content: bytes) -> bytes:
    """A PNG file with another chunk behind its header."""
    chunk = struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return png[:33] + chunk + png[33:]


def test_animated_png_is_refused() -> None:
    png = bytes(cv2.imencode(".png", light(255))[1])
    with pytest.raises(FrameError, match="a file of several pictures"):
        decode_picture(with_chunk(png, b"acTL", struct.pack(">II", 4, 0)))


# ------------------------------------------------------------------------------------------------------------------ NPY


@pytest.mark.parametrize("kind", ["<u2", ">u2", "u1"])
@pytest.mark.parametrize("is_fortran", [False, True])
@pytest.mark.parametrize("has_channel", [False, True])
def test_npy_of_any_order(kind: str, is_fortran: bool, has_channel: bool, tmp_path: Path) -> None:
    pixels = light(255 if kind == "u1" else 65535)
    shape = (*pixels.shape, 1) if has_channel else pixels.shape
    head = f"{{'descr': '{kind}', 'fortran_order': {is_fortran}, 'shape': {shape}}}\n".encode()
    body = pixels.astype(kind).reshape(shape).tobytes("F" if is_fortran else "C")
    (tmp_path / "raw.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + body)
    assert [*processed(tmp_path / "raw.npy")] == (TRUTH_8 if kind == "u1" else TRUTH)


@pytest.mark.parametrize("shape", [(4, 48, 64), (48, 64, 4)])
def test_four_angles_in_npy(shape: Tuple[int, ...], tmp_path: Path) -> None:
    """Which of both equal images are is not clear where angles can be frames."""
    np.save(tmp_path / "raw.npy", np.zeros(shape, np.uint8))
    if shape[0] == 4:
        with pytest.raises(FrameError, match=r"4 mosaics .* or four angle images"):
            read_picture(tmp_path / "raw.npy")
    else:
        assert read_picture(tmp_path / "raw.npy").encoding == "Angles8"


# --------------------------------------------------------------------------------------------------------- angle images


#: Numbers of four files; of angle images, I0 + I90 = I45 + I135.
LIGHT = (10, 20, 30, 20)


def write_pictures(folder: Path, names: Sequence[str], size: Tuple[int, int] = (32, 40)) -> Path:
    folder.mkdir(exist_ok=True)
    for index, name in enumerate(names):
        (folder / name).write_bytes(pgm(np.full(size, LIGHT[index % 4]), 255))
    return folder


@pytest.mark.parametrize(
    ("names", "frames"),
    [
        (["scene_000.pgm", "scene_045.pgm", "scene_090.pgm", "scene_135.pgm"], ["scene"]),
        (["0d.pgm", "45d.pgm", "90d.pgm", "135d.pgm"], ["set"]),
        (["I0.pgm", "I45.pgm", "I90.pgm", "I135.pgm"], ["set"]),
        (
            [f"scene{scene}_{angle:03d}deg.pgm" for scene in (1, 2) for angle in (0, 45, 90, 135)],
            ["scene1", "scene2"],
        ),
    ],
)
def test_four_angle_images_are_a_frame(names: List[str], frames: List[str], tmp_path: Path, capsys: Any) -> None:
    """Found in a folder by their names; one of them alone is refused."""
    folder = write_pictures(tmp_path / "set", names)
    with open_source(folder) as source:
        images = [record.image() for record in source.records]
    assert [image.frame_id for image in images] == frames
    for image in images:
        np.testing.assert_array_equal(image.data.reshape(32, 40, 4)[0, 0], LIGHT)
    for command in ("process", "layout", "replay"):
        out = [] if command == "layout" else ["-o", str(tmp_path / "out.mcap")]
        assert main([command, str(folder / names[1]), *out]) == 1
        assert "is one of four angle images by its name" in (text := capsys.readouterr().err)
        assert "--content mosaics" in text
    assert not (tmp_path / "out.mcap").exists()


@pytest.mark.parametrize(
    "names",
    [
        ["angle_0_left.pgm", "angle_45_left.pgm", "angle_90_left.pgm", "angle_135_left.pgm", "s0.pgm"],
        ["0.pgm", "45.pgm", "90.pgm"],
        [f"{angle}_{scene}.pgm" for angle in (0, 45, 90, 135) for scene in (0, 45, 90, 135)],
    ],
)
def test_names_that_are_not_clear_are_refused(names: List[str], tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "set", names)
    with pytest.raises(SourceError, match="--content mosaics"), open_source(folder):
        pass
    with open_source(folder, stated=Stated("mosaics")) as source:
        assert source.total == len(names)


@pytest.mark.parametrize(
    "names",
    [
        [f"frame_{index:03d}.pgm" for index in range(136)],
        [f"{angle:03d}.pgm" for angle in range(0, 180, 45)][:2],
        [f"{angle}.pgm" for angle in (0, 30, 45, 60, 90, 120, 135, 150)],
        [f"{angle}.0_{index}.pgm" for angle in (0, 45, 90, 135, 180) for index in range(2)],
    ],
)
def test_frames_with_these_and_other_numbers_are_read(names: List[str], tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "set", names)
    with open_source(folder) as source:
        assert source.total == len(names)


def test_angle_images_of_several_sizes_are_refused(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "set", ["0.pgm", "45.pgm", "90.pgm", "135.pgm"])
    write_pictures(folder, ["135.pgm"], (32, 44))
    with open_source(folder) as source, pytest.raises(FrameError, match="must have one size and type"):
        next(source.records).image()
