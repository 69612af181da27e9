"""The CUDA source of a kernel: one text, which NVRTC compiles without any headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Mapping, Set, Union

from polar_pipeline._util.share import share_path

#: Options of every compilation; NVRTC 11.4 knows them all. Line numbers serve the profilers and cost nothing. Products
#: and sums are fused only where the source says `fma`: otherwise the compiler chooses, and schedules differ by a bit.
OPTIONS = ("--std=c++14", "--generate-line-info", "--fmad=false")

_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def source(name: str, defines: Mapping[str, Union[int, str]]) -> str:
    """Return `kernels/<name>.cu` with definitions and with the files that it includes, each once.

    `#line` directives keep the compiler's messages pointing into the files.

    Args:
        name: Name of the kernel and of its file.
        defines: Preprocessor definitions. They are part of the text, as CuPy asks the compiler for its version once
            for each set of options.

    Raises:
        FileNotFoundError: There is no such kernel.
    """
    lines = [f"#define {key} {defines[key]}" for key in sorted(defines)]
    return "\n".join([*lines, _expand(share_path("kernels", f"{name}.cu"), set())])


def _expand(path: Path, seen: Set[Path]) -> str:
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = _INCLUDE.match(line)
        included = path.parent / include.group(1) if include else path
        if not include or not included.is_file():  # other files are left to the compiler
            lines.append(line)
        elif included not in seen:
            seen.add(included)
            lines += [_expand(included, seen), f'#line {number + 1} "{path.name}"']
        else:
            lines.append("")
    return "\n".join(lines)
