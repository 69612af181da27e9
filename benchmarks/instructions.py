"""Counts the instructions of every kernel's stages by the pipe that takes them, for the cost model.

    NVDISASM=nvdisasm python benchmarks/instructions.py

Needs no GPU, but NVRTC and NVIDIA's disassembler of CUDA 11 to 13.0 (later ones do not know sm_72). Every instruction
of a kernel belongs to the functions that the compiler's line information names, and so to a stage. What only blocks at
the border, or with saturated samples, come to is left out. Counts are static: loops have the same trips on every
device, so that they cancel in the shares that `polar_pipeline/cuda/instructions.py` gets.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from polar_pipeline.cuda import ssim
from polar_pipeline.cuda.compile import compile_kernel
from polar_pipeline.cuda.device import Slots
from polar_pipeline.cuda.schedule import Schedule, schedule_defines
from polar_pipeline.cuda.ssim import Similarity
from polar_pipeline.cuda.work import defines, make_work
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, make_plan
from polar_pipeline.sensor import FULL_FRAME

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
TARGET = KERNELS.parent / "polar_pipeline" / "cuda" / "instructions.py"
ARCHS = ("sm_72", "sm_87", "sm_90")
#: Opcodes by pipe (Nsight Compute's documentation, "Pipelines"); those not named here are integer and logic operations.
PIPES = {
    "half": "HADD2 HMUL2 HFMA2 HSET2 HSETP2 HMNMX2",
    "single": "FADD FMUL FFMA IMAD IMUL IDP FSWZADD",
    "special": "MUFU F2F F2I I2F FRND I2I POPC FLO",
    "memory": "LDS STS LDG STG LDL STL LD ST LDC LDSM ATOM ATOMS RED SHFL",
    "": "BRA BRX JMP EXIT BAR BSSY BSYNC NOP WARPSYNC CALL RET S2R CS2R DEPBAR LDGDEPBAR LDGSTS YIELD ERRBAR MEMBAR "
    "BREAK VOTE BMOV R2UR S2UR ACQBULK NANOSLEEP HMMA",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in PIPES.items() for opcode in opcodes.split()}
#: Functions that few blocks or threads come to.
RARE = {
    "find_saturated",
    "reflect_border",
    "saturated_outputs",
    "saturated_sites",
    "dark_sites",
    "count_saturated",
    "count_add",
    "count_invalid",
    "raw_pixel",
    "reflect",
    "lattice_reflect",
    "reflect_mosaic",
    "store8",
    "any_in_block",
    "any_in_warp",
    "sync_block",
    "grid_dependency_wait_in_one_block",
    "is_last_block",
    "reduce_pieces",
    "mirrored_at",
}
#: Functions whose pieces at the picture's right border store one value at a time.
PIECEWISE = {("store_floats", "store32"), ("store_values", "store16")}
#: Functions of `tile` -> its stages.
STAGES = {
    "complete_colours": "colors",
    "malvar_lines": "colors",
    "stage_a": "slide",
    "store_products": "products",
    "full_angles": "angles",
    "half_angles": "angles",
    "store_angles": "angles",
}


class Sample(NamedTuple):
    """A kernel to count, and what its stages are called in the model."""

    kernel: str
    arguments: Dict[str, Any]
    schedule: Schedule
    stages: Dict[str, str]


def _tile(threads: int, x: int, y: int, rows: int = 0) -> Schedule:
    return Schedule("tile", "tile", threads, x, y, rows)


_LIVE = ("intensity", "dolp", "aolp", "preview")
_POLAR, _ANGLES = _LIVE[:3], ("angle_0", "angle_45", "angle_90", "angle_135")
_COLOR: Dict[str, Any] = {"sensor": "IMX250MYR"}
_FULL: Dict[str, Any] = {"resolution": "full"}
_OWN: Dict[str, Any] = {**_COLOR, "co_sited": False, "products": _ANGLES}
#: Counted in pairs of half and of float.
TILES = (
    Sample(
        "tile",
        {"products": _LIVE},
        _tile(128, 32, 16),
        {"load": "load u8", "angles": "co-site", "products": "products"},
    ),
    *(
        Sample("tile", {"products": _LIVE, "raw_format": name}, _tile(128, 32, 16), {"load": f"load {name}"})
        for name in ("u16", "12p", "12packed")
    ),
    Sample("tile", {**_FULL, "demosaic": "bilinear"}, _tile(128, 64, 32), {"angles": "mono bilinear"}),
    Sample("tile", {**_FULL, "demosaic": "gradient"}, _tile(128, 64, 32), {"angles": "mono gradient"}),
    Sample("tile", _FULL, _tile(128, 64, 32, 6), {"slide": "adaptive slide", "angles": "mono adaptive"}),
    Sample("tile", {**_COLOR, **_FULL, "demosaic": "bilinear"}, _tile(128, 32, 16), {"colors": "color bilinear"}),
    Sample("tile", _COLOR, _tile(128, 32, 16), {"colors": "color mhc"}),
    Sample("tile", {**_COLOR, **_FULL}, _tile(128, 32, 16, 6), {"colors": "color weighted"}),
)
#: Counted as a whole, in pairs of half.
WHOLE = (
    Sample("mono_half", {}, Schedule("mono_half", "registers", 64, 8, rows=2), {}),
    Sample("mono_full", {**_FULL, "demosaic": "bilinear"}, Schedule("mono_full", "registers", 64, 16, rows=2), {}),
    Sample("color_half angles", _OWN, Schedule("color_half", "registers", 64, 4, rows=2), {}),
    Sample(
        "color_half", {**_OWN, "products": (*_ANGLES, *_POLAR)}, Schedule("color_half", "registers", 64, 4, rows=2), {}
    ),
)
#: The second launch, by (window, what it reads).
SECOND = (("registers", "float16"), ("registers", "float32"), ("registers", MOSAIC), ("tensor", "float16"))

Chain = List[Tuple[str, int]]


def functions(path: Path) -> Dict[int, str]:
    """Line -> the function that it is part of."""
    found: Dict[int, str] = {}
    depth, name = 0, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = line.split("//")[0]
        if depth == 0:
            head = re.search(r"(?:DEVICE|CONSTANT)\s+(?:constexpr\s+)?[\w:]+[\s&*]+(\w+)\s*\(", code)
            name = head.group(1) if head else name
        if name:
            found[number] = name
        depth += code.count("{") - code.count("}")
        if depth == 0 and "}" in code:
            name = ""
    return found


_FUNCTIONS = {path.name: functions(path) for path in (*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh"))}
_SOURCE = (KERNELS / "tile_load.cuh").read_text(encoding="utf-8").splitlines()
#: Lines of `load_tile` for blocks of 8-bit pixels inside the picture.
_FAST = _SOURCE.index("#if RAW_FORMAT == RAW_U8") + 1
_SLOW = _SOURCE.index("#endif", _FAST) + 1


def instructions(cubin: bytes) -> Iterator[Tuple[str, Chain]]:
    """(opcode, lines of source that it comes from, innermost first) of every instruction."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [os.environ.get("NVDISASM", "nvdisasm"), "-c", "-gi", file.name]
        text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    chain: Chain = []
    is_new = True
    for line in text.splitlines():
        place = re.match(r'\s*//## File "([^"]+)", line (\d+)', line)
        if place:
            chain = [] if is_new else chain
            chain.append((Path(place.group(1)).name, int(place.group(2))))
            is_new = False
        code = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", line)
        if code:
            is_new = True
            yield code.group(1), chain


def stage_of(chain: Chain, raw_format: str) -> Optional[str]:
    """The stage of `tile` that a chain of lines belongs to; None for what is rare, and for the loops between stages."""
    names = [_FUNCTIONS.get(file, {}).get(line, "") for file, line in chain]
    if RARE.intersection(names) or any(a in names and b in names for a, b in PIECEWISE):
        return None
    if "load_tile" in names:
        line = chain[names.index("load_tile")][1]
        return "load" if (_FAST <= line < _SLOW) == (raw_format == "u8") else None
    return next((stage for name, stage in STAGES.items() if name in names), "")


def count(kernel: str, flags: Any, arch: str, raw_format: str = "u8") -> Dict[str, Counter]:
    """Stage -> pipe -> instructions; those of memory once for each 32-bit word of a lane."""
    found: Dict[str, Counter] = {}
    for opcode, chain in instructions(compile_kernel(kernel, flags, arch)):
        stage = stage_of(chain, raw_format)
        if stage is None:
            continue
        counted = found.setdefault(stage, Counter())
        name = opcode.split(".")[0]
        pipe = "" if name.startswith("U") else PIPE_OF.get(name, "integer")
        words = 4 if ".128" in opcode else 2 if ".64" in opcode else 1
        counted["issue"] += 1
        counted[pipe] += words if pipe == "memory" else 1
    return found


def whole(counted: Dict[str, Counter]) -> Counter:
    """All stages together."""
    return sum(counted.values(), Counter())


def table() -> Dict[Tuple[str, str, str], Counter]:
    """(architecture, precision, stage) -> counts."""
    found: Dict[Tuple[str, str, str], Counter] = {}
    for arch in ARCHS:
        for sample in (*TILES, *WHOLE):
            arguments = dict(sample.arguments)
            raw_format = arguments.pop("raw_format", "u8")
            for precision in ("fp16", "fp32") if sample in TILES else ("fp16",):
                options = make_options(**{"products": _POLAR, "dtype": "uint8", "precision": precision, **arguments})
                full_scale = 255 if raw_format == "u8" else 4095
                work = make_work(make_plan(options.products), options, raw_format, full_scale, FULL_FRAME)
                flags = {**defines(work), **schedule_defines(work, sample.schedule)}
                counted = count(sample.schedule.kernel, flags, arch, raw_format)
                if sample.stages:
                    for stage, name in sample.stages.items():
                        found[arch, precision, name] = counted[stage]
                else:
                    found[arch, precision, sample.kernel] = whole(counted)
        for window, source in SECOND:
            if window == "tensor" and arch == "sm_72":
                continue
            work = Similarity(1024, 1224, 1, 11, 1.5, source, "float32")
            schedule = (
                Schedule("ssim", "tensor", 128, 16, rows=64)
                if window == "tensor"
                else Schedule("ssim", "registers", 320, 308, rows=64)
            )
            flags = {**ssim.defines(work), **ssim.schedule_defines(schedule)}
            precision = "fp16" if source == "float16" else "fp32"
            found[arch, "fp16", f"ssim {window} {source}"] = whole(count("ssim", flags, arch))
    return found


HEAD = '''"""Instructions by the pipe that takes them, for every stage of the kernels: what the cost model weighs.

Written by `python benchmarks/instructions.py` from the kernels as NVRTC compiles them; shares of what the same stage
takes in all on sm_90 with pairs of half. A word of 32 bits that a lane loads or stores counts once under `memory`.
"""

from __future__ import annotations

from typing import Dict, Tuple

from polar_pipeline.cuda.device import Slots

#: (stage, in pairs of half, compute capability) -> shares of its issue slots.
SHARES: Dict[Tuple[str, bool, int], Slots] = {
'''


def main() -> None:
    """Count, print, write."""
    found = table()
    lines = []
    for arch, precision, stage in sorted(found, key=lambda key: (key[2], key[1], key[0])):
        basis = found["sm_90", "fp16", stage]["issue"]
        counted = found[arch, precision, stage]
        shares = ", ".join(f"{counted[pipe] / basis:.2f}" for pipe in Slots._fields)
        lines.append(f'    ("{stage}", {precision == "fp16"}, {arch[3:]}): Slots({shares}),  # {counted["issue"]}')
    TARGET.write_text(HEAD + "\n".join(lines) + "\n}\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
