"""A compiler's command that compiles each source apart, and only where it was not compiled before.

    kept_objects.py FOLDER COMPILER [ARGUMENT ...]

Objects are kept in FOLDER by what the preprocessor makes of their source and by their options. Calls without a `.cpp`
file, such as `--version`, go to the compiler as they are.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Tuple


def split(arguments: List[str]) -> Tuple[List[str], List[str], List[str]]:
    """(sources, options of the compiler, `-o` and its file) of a call that makes a shared library."""
    output = arguments.index("-o")
    sources = [text for text in arguments if text.endswith(".cpp")]
    rest = arguments[:output] + arguments[output + 2 :]
    return (
        sources,
        [text for text in rest if text not in sources and text != "-shared"],
        arguments[output : output + 2],
    )


def compiled(folder: Path, compiler: str, options: List[str], source: str) -> str:
    """The object of a source."""
    # without line markers: they name the folder of the source
    text = subprocess.run([compiler, *options, "-E", "-P", source], stdout=subprocess.PIPE, check=True).stdout
    kept = folder / f"{hashlib.sha256(text + repr((compiler, options)).encode()).hexdigest()}.o"
    if not kept.exists():
        part = kept.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *options, "-c", source, "-o", str(part)], check=True)
        part.replace(kept)
    return str(kept)


def main() -> int:
    """Compile and link; the exit status of the compiler."""
    folder, compiler, *arguments = sys.argv[1:]
    if not any(text.endswith(".cpp") for text in arguments):
        return subprocess.run([compiler, *arguments], check=False).returncode
    sources, options, output = split(arguments)
    try:
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(lambda source: compiled(Path(folder), compiler, options, source), sources))
    except subprocess.CalledProcessError as err:
        return err.returncode
    return subprocess.run([compiler, "-shared", *options, *objects, *output], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
