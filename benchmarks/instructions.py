"""Counts the instructions of every kernel's stages by the pipe that takes them, for the cost model.

    NVDISASM=nvdisasm python benchmarks/instructions.py [--ssim]

Needs no GPU, but NVRTC and NVIDIA's disassembler of CUDA 11 to 13.0 (later ones do not know sm_72). Every instruction
of a kernel belongs to the functions that the compiler's line information names, and so to a stage. Instructions that
only blocks at the border, or with saturated samples, execute are left out. Counts are static: loops have the same trips
on every device, so that they cancel in the shares that are written to `polar_pipeline/cuda/model/instructions.py`.
`--ssim` writes nothing; it prints the instructions of a thread of SSIM in registers by images, stride and window, from
which the constants of `polar_pipeline/cuda/model/ssim_cost.py` are taken.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from polar_pipeline.cuda.compile import compile_kernel
from polar_pipeline.cuda.model import ssim_cost
from polar_pipeline.cuda.model.device import DEVICES, Slots
from polar_pipeline.cuda.model.launch_model import KernelWork, launch_model
from polar_pipeline.cuda.model.requested_work import make_work
from polar_pipeline.cuda.model.schedule import Schedule
from polar_pipeline.cuda.model.ssim_work import SsimWork
from polar_pipeline.cuda.model.transform_work import TransformWork
from polar_pipeline.cuda.model.work import RAW_FORMATS, PolarizationWork
from polar_pipeline.options import make_options
from polar_pipeline.plan import MOSAIC, make_plan
from polar_pipeline.sensor.mosaic import FULL_FRAME

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
TARGET = KERNELS.parent / "polar_pipeline" / "cuda" / "model" / "instructions.py"
#: Compute capability that kernels are compiled for -> a device that has it.
DEVICE_OF = {device.arch: device for device in DEVICES.values()}
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
    "ideal_pixel",
    "load_any_halves",
    "reflect_border",
    "saturated_outputs",
    "saturated_sites",
    "replace_invalid",
    "number_again",
    "most_again",
    "sum_again",
    "store_unpolarized",
    "limit",
    "dark_sites",
    "drop_invalid",
    "which_are_saturated",
    "saturated_bytes",
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
    "mark",
    "erase",
    "erase_light",
    "find_invalid",
}
#: Functions whose pieces at the picture's right border store one value at a time.
PIECEWISE = {("store_floats", "store32"), ("store_values", "store16")}
#: Functions of `tile` -> its stages.
STAGES = {
    "complete_colours": "colors",
    "malvar_lines": "colors",
    "gradients": "gradients",
    "find_edges": "edges",
    "find_gradients": "gradients",
    "find_detail": "slide",
    "find_angles": "angles",
    "load_halves": "load",
    "store_tile": "products",
    "finish_stage_a": "slide",
    "stage_a": "slide",
    "store_products": "products",
    "full_angles": "angles",
    "half_angles": "angles",
    "store_angles": "angles",
    "take": "take",
    "make_window": "window",
    "make_cells": "window",
}


@dataclass(frozen=True)
class CountedKernel:
    """A kernel whose instructions are counted.

    Attributes:
        name: Its stage in the model, if it is counted as one stage.
        arguments: The pipeline's options, `raw_format`, and `calibrated`.
        schedule: How it is executed.
        stages: Stage of the kernel -> stage of the model; empty if it is counted as one stage.
    """

    name: str
    arguments: Dict[str, Any]
    schedule: Schedule
    stages: Dict[str, str]

    def work(self, precision: str) -> PolarizationWork:
        """What the kernel computes, in `fp16` or `fp32`."""
        arguments = {"products": _POLAR, "dtype": "uint8", "precision": precision, **self.arguments}
        raw_format, calibrated = arguments.pop("raw_format", "u8"), arguments.pop("calibrated", False)
        options, full_scale = make_options(**arguments), 255 if raw_format == "u8" else 4095
        work = make_work(make_plan(options.products), options, raw_format, full_scale, FULL_FRAME)
        return replace(work, calibrated=calibrated)


def _tile(threads: int, x: int, y: int, rows: int = 0) -> Schedule:
    return Schedule("tile", "tile", threads, x, y, rows)


_LIVE = ("intensity", "dolp", "aolp", "preview")
_POLAR, _ANGLES = _LIVE[:3], ("angle_0", "angle_45", "angle_90", "angle_135")
_COLOR: Dict[str, Any] = {"sensor": "IMX250MYR"}
_FULL: Dict[str, Any] = {"resolution": "full"}
#: Counted in pairs of half and of float.
TILES = (
    CountedKernel(
        "tile",
        {"products": _LIVE},
        _tile(128, 32, 16),
        {"load": "load u8", "angles": "co-site", "products": "products", "": "thread"},
    ),
    *(
        CountedKernel("tile", {"products": _LIVE, "raw_format": name}, _tile(128, 32, 16), {"load": f"load {name}"})
        for name in ("u16", "12p", "12packed")
    ),
    *(
        CountedKernel(
            "tile",
            {"products": _LIVE, "raw_format": name, "calibrated": True},
            _tile(128, 32, 16),
            {"load": f"load {name} calibrated"},
        )
        for name in RAW_FORMATS
    ),
    CountedKernel("tile", {**_FULL, "demosaic": "bilinear"}, _tile(128, 64, 32), {"angles": "mono bilinear"}),
    CountedKernel("tile", {**_FULL, "demosaic": "gradient"}, _tile(128, 64, 32), {"angles": "mono gradient"}),
    CountedKernel(
        "tile",
        _FULL,
        _tile(128, 64, 32, 6),
        {
            "gradients": "adaptive gradients",
            "edges": "adaptive edges",
            "slide": "adaptive slide",
            "angles": "mono adaptive",
        },
    ),
    CountedKernel(
        "tile", {**_COLOR, **_FULL, "demosaic": "bilinear"}, _tile(128, 32, 16), {"colors": "color bilinear"}
    ),
    CountedKernel("tile", _COLOR, _tile(128, 32, 16), {"colors": "color mhc"}),
    CountedKernel("tile", {**_COLOR, **_FULL}, _tile(128, 32, 16, 6), {"colors": "color weighted"}),
)
_STRIP = Schedule("color_strip", "strip", 64, 2, rows=16)
#: Counted as one stage, in pairs of half, and in strips also of float.
WINDOWS = (
    CountedKernel("mono_half", {"products": _LIVE}, Schedule("mono_half", "registers", 64, 8, rows=2), {}),
    CountedKernel(
        "mono_half_calibrated",
        {"calibrated": True},
        Schedule("mono_half_calibrated", "strip", 128, 4, rows=16),
        {"": "mono_half_calibrated"},
    ),
    CountedKernel(
        "mono_full", {**_FULL, "demosaic": "bilinear"}, Schedule("mono_full", "registers", 64, 16, rows=2), {}
    ),
    CountedKernel("color_strip angles", {**_COLOR, "products": _ANGLES}, _STRIP, {}),
    CountedKernel("color_strip", {**_COLOR, "products": _LIVE}, _STRIP, {}),
)
#: The SSIM launch, by (window, what it reads).
SSIM_WINDOWS = (("registers", "uint16"), ("registers", "float32"), ("registers", MOSAIC), ("tensor", "uint16"))

#: Samples of the launch of a geometry, in pairs of half and in float.
SAMPLES = {"transform between": True, "transform pixels": False}

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


def disassembly(cubin: bytes) -> List[str]:
    """Lines of code, with those of the source that it comes from, and labels."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [os.environ.get("NVDISASM", "nvdisasm"), "-c", "-gi", file.name]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()


def instructions(lines: List[str]) -> Iterator[Tuple[str, Chain]]:
    """(opcode, lines of source that it comes from, innermost first) of every instruction of a disassembly."""
    chain: Chain = []
    is_new = True
    for line in lines:
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
        if chain[names.index("load_tile")][0] == "tile_correct.cuh":
            return "load"
        line = chain[names.index("load_tile")][1]
        return "load" if (_FAST <= line < _SLOW) == (raw_format == "u8") else None
    return next((stage for name, stage in STAGES.items() if name in names), "")


def count(work: KernelWork, schedule: Schedule, arch: str) -> Dict[str, Counter[str]]:
    """Stage -> pipe -> instructions; those of memory once for each 32-bit word of a lane."""
    found: Dict[str, Counter[str]] = {}
    raw_format = work.raw_format if isinstance(work, PolarizationWork) else "u8"
    for opcode, chain in instructions(disassembly(compiled(work, schedule, arch))):
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


def compiled(work: KernelWork, schedule: Schedule, arch: str) -> bytes:
    """The cubin of a launch."""
    return compile_kernel(schedule.kernel, launch_model(work, DEVICE_OF[arch]).defines(schedule), arch)


def total(counted: Dict[str, Counter[str]]) -> Counter[str]:
    """Pipe -> instructions of all stages."""
    return sum(counted.values(), Counter())


def table() -> Dict[Tuple[str, str, str], Counter[str]]:
    """(architecture, precision, stage) -> counts."""
    found: Dict[Tuple[str, str, str], Counter[str]] = {}
    for arch in DEVICE_OF:
        for tile, precision in product(TILES, ("fp16", "fp32")):
            counted = count(tile.work(precision), tile.schedule, arch)
            found.update({(arch, precision, name): counted[stage] for stage, name in tile.stages.items()})
        for kernel in WINDOWS:
            for precision in ("fp16", "fp32") if kernel.schedule.window == "strip" else ("fp16",):
                counted = count(kernel.work(precision), kernel.schedule, arch)
                if not kernel.stages:
                    counted = {kernel.name: total(counted)}
                names = kernel.stages or {kernel.name: kernel.name}
                found.update({(arch, precision, name): counted[stage] for stage, name in names.items()})
        for window, source in SSIM_WINDOWS:
            if window == "tensor" and arch == "sm_72":
                continue
            work = SsimWork(1024, 1224, 1, 11, 1.5, source, "float32")
            schedule = (
                Schedule("ssim", "tensor", 128, 32, rows=64)
                if window == "tensor"
                else Schedule("ssim", "registers", 320, 308, rows=64)
            )
            found[arch, "fp16", f"ssim {window} {source}"] = total(count(work, schedule, arch))
        for (name, positions), precision in product(SAMPLES.items(), ("fp16", "fp32")):
            samples = transform_work(positions, precision)
            found[arch, precision, name] = count(samples, Schedule("transform", "tile", 256, 64, 16), arch)["take"]
    return found


def transform_work(positions: bool, precision: str) -> TransformWork:
    """Samples of a mono sensor's planes of half."""
    size, outputs = (FULL_FRAME[0] // 2, FULL_FRAME[1] // 2), tuple((name, "uint8") for name in _POLAR)
    return TransformWork(size, *size, 1, positions, False, False, precision == "fp16", "float16", outputs)


#: Images and strides that `--ssim` counts: with a stride of 3 and more the kernel's loop contains another loop.
SSIM_INPUTS = (("uint16", 1), ("float32", 1), (MOSAIC, 1), ("uint16", 2), ("float32", 2))
#: Code in the loop of SSIM in registers that only some iterations execute, as (text of its first line, text of the line
#: after its last one): loads of rows beyond the border, and sums of a complete piece of the map.
_NOT_EVERY_ITERATION = (("[i] = column.mirrored_at(", "}"), ("if ((y + BATCH) % PIECE_Y == 0", "(task, s.each)"))
#: Rows of the map per iteration of that loop.
_ROWS_PER_ITERATION = 4


def lines_not_in_every_iteration() -> Set[Tuple[str, int]]:
    """(file, line) of `_NOT_EVERY_ITERATION`.

    Raises:
        ValueError: The kernels have no such line, or more than one.
    """
    found: Set[Tuple[str, int]] = set()
    for begin, end in _NOT_EVERY_ITERATION:
        places = [
            (path, lines, k)
            for path in sorted(KERNELS.glob("ssim*.cu*"))
            for lines in [path.read_text(encoding="utf-8").splitlines()]
            for k, line in enumerate(lines)
            if begin in line
        ]
        if len(places) != 1:
            raise ValueError(f"expected one line of the kernels with {begin!r}, got {len(places)}")
        path, lines, first = places[0]
        last = next(k for k in range(first + 1, len(lines)) if end in lines[k])
        found.update((path.name, k + 1) for k in range(first, last))
    return found


def longest_loop(lines: List[str]) -> Tuple[int, int]:
    """Numbers of the first and the last instruction of the longest loop with a barrier in a disassembly."""
    labels: Dict[str, int] = {}
    barriers, longest, number = [], (0, 0), 0
    for line in lines:
        label, jump = re.match(r"\s*(\.L_x_\w+):", line), re.search(r"\bBRA\b.*(\.L_x_\w+)", line)
        if label:
            labels[label.group(1)] = number
        if re.match(r"\s*/\*[0-9a-f]+\*/\s+\S", line):
            if " BAR." in line:
                barriers.append(number)
            target = labels.get(jump.group(1), number) if jump else number
            if any(target <= barrier < number for barrier in barriers):
                longest = max(longest, (target, number), key=lambda loop: (loop[1] - loop[0], loop))
            number += 1
    return longest


def ssim_instructions(work: SsimWork, arch: str) -> Tuple[int, float]:
    """Instructions of a thread of SSIM in registers: before its first row of the map, and per row of the map.

    Loads of rows beyond the border are left out in the loop, but not before it; so are sums of pieces of the map.
    """
    schedule = Schedule("ssim", "registers", 320, 308 if work.window < 15 else 304, rows=64)
    lines = disassembly(compiled(work, schedule, arch))
    rare, chains = lines_not_in_every_iteration(), [chain for _, chain in instructions(lines)]
    begin, end = longest_loop(lines)
    return begin, sum(not rare.intersection(chain) for chain in chains[begin : end + 1]) / _ROWS_PER_ITERATION


def print_ssim() -> None:
    """Print the instructions of SSIM in registers on sm_90, and those that the model assumes."""
    for (source, stride), window in product(SSIM_INPUTS, range(3, 16, 2)):
        work = SsimWork(1024, 1224, stride, window, 1.5, source, "float32")
        before, row = ssim_instructions(work, "sm_90")
        model = ssim_cost._strip_slots(work, 0), ssim_cost._row_slots(work)
        print(f"{source} stride {stride} {window} taps: {before} before, {row:.1f} a row; model", *model, flush=True)


HEAD = '''"""Instructions by the pipe that takes them, for every stage of the kernels: what the cost model weighs.

Written by `python benchmarks/instructions.py` from the kernels as NVRTC compiles them; shares of what the same stage
takes in all on sm_90 with pairs of half. A word of 32 bits that a lane loads or stores counts once under `memory`.
"""

from __future__ import annotations

from typing import Dict, Tuple

from polar_pipeline.cuda.model.device import Slots

#: (stage, in pairs of half, compute capability) -> shares of its issue slots.
SHARES: Dict[Tuple[str, bool, int], Slots] = {
'''


def main() -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--ssim", action="store_true", help="print the instructions of SSIM in registers; write nothing"
    )
    if parser.parse_args().ssim:
        print_ssim()
        return
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
