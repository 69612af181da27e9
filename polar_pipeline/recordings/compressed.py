"""Raw mosaics in `sensor_msgs/CompressedImage`: of image_transport's plugins, of other writers, and of this package."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import List

import numpy as np

from polar_pipeline._util.text import described, quoted
from polar_pipeline.recordings import messages
from polar_pipeline.recordings.limits import MAX_BYTES, check_size
from polar_pipeline.recordings.messages import Cdr, ImageMessage
from polar_pipeline.recordings.rawpicture import decode_picture
from polar_pipeline.recordings.rawzstd import decompress_raw, is_raw_zstd, load_zstandard
from polar_pipeline.sensor.encodings import get_format
from polar_pipeline.sensor.frames import FrameError, FrameWarning

#: Words of a format that name a codec or a plugin, in lower case; all other words are encodings.
_NO_ENCODINGS = ("jpeg", "jpg", "png", "tiff", "tif", "pgm", "compressed", "compresseddepth")
#: Formats of image_transport's plugins that deflate an image with all its fields.
_DEFLATED = ("zstd", "zlib")
#: Header of a deflated image: height, width, whether it is big-endian, step, and length of the encoding behind it.
_HEADER = struct.Struct("<IIBII")
#: Bytes of the header of `compressedDepth`: quantization of float images.
_DEPTH_HEADER = 12
#: First bytes of data that zstd compressed.
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: First bytes of a PNG file.
PNG_MAGIC = b"\x89PNG"
_ADVICE = "record the raw topic, or image_transport's zstd or png"


def decompress_image(message: Cdr, max_bytes: int = MAX_BYTES) -> ImageMessage:
    """Decode the image in a serialized `sensor_msgs/CompressedImage`.

    Raises:
        FrameError: The message cannot be decoded (causes `cdr`, `encoding`, `file`, `size`, `type`).
    """
    compressed = messages.decode_compressed(message)
    try:
        image = _decoded(compressed.format, compressed.data.data, max_bytes)
    except FrameError as err:
        raise FrameError(err.cause, f"a compressed image of format {quoted(compressed.format)}: {err}") from err
    return replace(image, stamp_ns=compressed.stamp_ns, frame_id=compressed.frame_id)


def _decoded(text: str, data: Cdr, max_bytes: int) -> ImageMessage:
    """Decode the image in the data of a compressed message of this format."""
    if is_raw_zstd(text):
        image = decompress_raw(data, max_bytes)
        stated = text.rpartition(";")[0].strip()
        if ";" in text and stated != image.encoding:
            raise FrameError("encoding", f"its pixels are {quoted(image.encoding)}")
        return image
    words = text.replace(";", " ").split()
    kinds = [word.lower().replace("image/", "").lstrip(".") for word in words]
    if len(kinds) == 1 and kinds[0] in _DEFLATED:
        return _inflated(data, max_bytes)
    if "rvl" in kinds:
        raise FrameError("file", "the codec RVL is not read: set compressedDepth's format to png")
    names = [word for word, kind in zip(words, kinds) if kind not in _NO_ENCODINGS]
    for name in names:
        get_format(name)  # raises what the table of refused names says
    is_depth = "compresseddepth" in kinds
    data = data[_DEPTH_HEADER:] if is_depth else data
    image = decode_picture(data, max_bytes)
    if is_depth and not image.data.view(f"u{image.step // image.width}").all():
        image = _with_warning(image, "pixels are 0, which compressedDepth writes for numbers above depth_max")
    is_wide = image.step > image.width or (bytes(data[:4]) == PNG_MAGIC and data[24] == 16)  # its bits of a pixel
    return _as_stated(image, names, is_wide) if names else image


def _with_warning(image: ImageMessage, text: str) -> ImageMessage:
    return replace(image, warnings=(*image.warnings, FrameWarning("encoding", f"{text}: {_ADVICE}")))


def _as_stated(image: ImageMessage, names: List[str], is_wide: bool) -> ImageMessage:
    """Return a decoded picture under the encoding that the format of its message states.

    `names` are the encoding of the image that was sent, and the one that it was converted to before compression.
    `is_wide` says that the picture has pixels of 16 bit, which may state that they use fewer.
    """
    first, last = names[0], names[-1]
    sent, converted, decoded = (get_format(name) for name in (first, last, image.encoding))
    if "bayer" in first.lower() and "bayer" not in last.lower():
        raise FrameError("encoding", f"the mosaic was lost when {first} was converted to {last}: {_ADVICE}")
    refusal = FrameError("encoding", f"its pixels are {image.encoding}, and it states {' as '.join(names)}")
    if sent.channels > 1:
        raise refusal
    is_jpeg = any(row.cause == "jpeg" for row in image.warnings)
    if decoded.packing == "u8" != sent.packing and (converted.packing == "u8" or is_jpeg):
        return _with_warning(image, f"{first} was converted to 8 bit, which lost the lower bits")
    is_equal = (sent.packing == "u8") == (decoded.packing == "u8") and decoded.bits in (8, 16, sent.bits)
    states_depth = sent.bits == 16 and decoded.bits < 16 and is_wide  # names in 16 do not
    if sent != converted or not (is_equal or states_depth):
        raise refusal
    if states_depth:
        return image
    # rows of pictures are unpacked and have no padding, which their step may leave open under a packed name
    return replace(image, encoding=first, step=image.step if sent.packing in ("u8", "u16") else 0)


def _inflated(data: Cdr, max_bytes: int) -> ImageMessage:
    """Read an image of image_transport's `zstd`, whose pixels are in the format of gzip or of zstd, or of its `zlib`.

    At most one byte more than the header states is inflated; it shows that there are more.
    """
    try:
        height, width, is_bigendian, step, length = _HEADER.unpack_from(data)
        size, place = step * height, _HEADER.size + length
        check_size("an image", size, max_bytes)
        encoding, body = bytes(data[_HEADER.size : place]).decode(), data[place:]
        if bytes(body[:4]) == ZSTD_MAGIC:
            content = load_zstandard().ZstdDecompressor().stream_reader(body).read(size + 1)
        else:
            content = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, size + 1)  # 32: of gzip or zlib
        pixels = np.frombuffer(content, np.uint8)
    except (FrameError, ImportError):
        raise
    except Exception as err:  # struct.error, UnicodeDecodeError, zlib.error, ZstdError, MemoryError
        raise FrameError("file", f"{len(data)} bytes cannot be decompressed: {described(err)}") from err
    return ImageMessage(0, "", height, width, encoding, bool(is_bigendian), step, pixels)
