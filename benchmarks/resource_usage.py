"""What a compiled kernel takes of a device, read from its cubin; needs no GPU."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Iterator, Tuple

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

#: Format of an attribute in `.nv.info` whose value follows its header, and the attributes that are read; each value is
#: a (symbol, number) pair.
_SIZED_FORMAT, _FRAME_SIZE, _REGISTER_COUNT = 0x04, 0x11, 0x2F
#: Bytes of a block's shared memory that the system reserves from sm_90 on; they are counted in the kernel's section.
_RESERVED_SHARED_BYTES = 1024


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes of the device.

    Attributes:
        name: The entry point.
        registers: Per thread.
        shared_bytes: Shared memory per block that is part of the kernel, without what a launch adds.
        spill_bytes: Local memory per thread: spilled registers, and arrays that found no registers.
    """

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int


def kernel_resources(cubin: bytes) -> KernelResources:
    """What the only kernel in a cubin takes.

    Raises:
        RuntimeError: pyelftools is not installed.
        ValueError: The data is no cubin with exactly one kernel.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as err:
        raise RuntimeError(f"reading a compiled kernel needs pyelftools ({err}); pip install pyelftools") from err

    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError(f"a cubin is a 64-bit ELF file, got {cubin[:5]!r}")
    try:
        elf = ELFFile(BytesIO(cubin))
        names = [section.name[len(".text.") :] for section in elf.iter_sections() if section.name.startswith(".text.")]
        if len(names) != 1:
            raise ValueError(f"expected a cubin with one kernel, got {names}")
        (name,) = names
        attributes = dict(_attributes(elf, name))
        shared = elf.get_section_by_name(f".nv.shared.{name}")
        shared_bytes = shared["sh_size"] if shared is not None else 0
        if shared_bytes and elf.get_section_by_name(".nv.shared.reserved.0") is not None:
            shared_bytes -= _RESERVED_SHARED_BYTES
    except ELFError as err:
        raise ValueError(f"a damaged cubin: {err}") from err
    return KernelResources(name, attributes[_REGISTER_COUNT], shared_bytes, attributes.get(_FRAME_SIZE, 0))


def _attributes(elf: ELFFile, kernel: str) -> Iterator[Tuple[int, int]]:
    """(attribute, number) of one kernel in `.nv.info`."""
    symbols = elf.get_section_by_name(".symtab")
    data, offset = elf.get_section_by_name(".nv.info").data(), 0
    while offset < len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, offset)
        offset += 4
        if kind != _SIZED_FORMAT:  # the value is in the header
            continue
        if size == 8:
            symbol, number = struct.unpack_from("<II", data, offset)
            if symbols.get_symbol(symbol).name == kernel:
                yield attribute, number
        offset += size
