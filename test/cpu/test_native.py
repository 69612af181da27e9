"""The compiler of the CPU kernels: found or not, broken or not, and what it made kept on disk."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List

import numpy as np
import pytest
from harness import COMPILER
from support import assert_gone

from polar_pipeline import Pipeline
from polar_pipeline._util.cache import read_entry
from polar_pipeline._util.stop_flag import StoppedError
from polar_pipeline.cpu import native
from polar_pipeline.cpu.native import NativeError, compile_library, find_compiler, find_library
from polar_pipeline.doctor import checks as doctor

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler (c++, or what CXX names)")
RAW = (np.arange(32 * 40).reshape(32, 40) % 251).astype(np.uint8)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of our own, and nothing known of any compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(native.VARIABLE, raising=False)
    native._found.cache_clear()
    yield
    native._found.cache_clear()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Kernels that are quickly compiled, in a folder of their own."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    functions = "".join(f'extern "C" void {name}() {{}}\n' for name in native._FUNCTIONS)
    (folder / "kernels.cpp").write_text(f'#include "answer.hpp"\n{functions}')
    (folder / "answer.hpp").write_text('extern "C" int answer() { return ANSWER; }\n')
    monkeypatch.setattr(native, "share_path", lambda *_: folder)
    monkeypatch.setattr(native, "literals", lambda: {"ANSWER": "42"})
    return folder


class Compiler:
    """A command in the compiler's place that writes down its calls.

    Args:
        path: Where to write it.
        text: What it does, in the shell, besides.
    """

    def __init__(self, path: Path, text: str) -> None:
        self._log = path.with_suffix(".log")
        path.write_text(f'#!/bin/sh\necho "$@" >> {self._log}\n{text}\n')
        path.chmod(0o755)
        self.command = (str(path),)

    @property
    def compilations(self) -> int:
        """How often it compiled."""
        lines: List[str] = self._log.read_text().splitlines() if self._log.exists() else []
        return len([line for line in lines if not line.endswith("--version")])


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path / "compiler", f'exec {COMPILER} "$@"')


def entries(tmp_path: Path) -> List[Path]:
    return sorted((tmp_path / "cache" / "polar_pipeline").glob("*"))


# ------------------------------------------------------------------------------------------------------------ the cache


@needs_compiler
def test_compiled_once_per_source_number_and_compiler(
    small: Path, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compile_library(compiler.command).answer() == 42
    assert compile_library(compiler.command).answer() == 42
    assert compiler.compilations == 1
    monkeypatch.setattr(native, "literals", lambda: {"ANSWER": "43"})
    assert compile_library(compiler.command).answer() == 43
    source = small / "answer.hpp"
    source.write_text(source.read_text().replace("ANSWER", "44"))
    assert compile_library(compiler.command).answer() == 44
    assert compile_library((*compiler.command, "-DUNUSED")).answer() == 44
    monkeypatch.setattr(native, "_processor", lambda: ["another one"])
    assert compile_library(compiler.command).answer() == 44
    assert compiler.compilations == len(entries(tmp_path)) == 5


@needs_compiler
@pytest.mark.parametrize("damage", [b"", b"short", None])
@pytest.mark.usefixtures("small")
def test_a_broken_entry_is_compiled_anew(compiler: Compiler, tmp_path: Path, damage: bytes) -> None:
    compile_library(compiler.command)
    (entry,) = entries(tmp_path)
    data = entry.read_bytes()
    entry.unlink()  # the old one is loaded: it must not change under way
    entry.write_bytes(data[:-1] + b"?" if damage is None else damage)
    assert compile_library(compiler.command).answer() == 42
    assert compile_library(compiler.command).answer() == 42
    assert compiler.compilations == 2
    assert entries(tmp_path) == [entry]
    assert read_entry(entry.name) is not None


@needs_compiler
@pytest.mark.usefixtures("small")
def test_a_cache_that_cannot_be_written_costs_time_only(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    assert compile_library(compiler.command).answer() == compile_library(compiler.command).answer() == 42
    assert compiler.compilations == 2


@needs_compiler
@pytest.mark.usefixtures("small")
def test_without_a_home_nothing_is_kept(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert compile_library(compiler.command).answer() == compile_library(compiler.command).answer() == 42
    assert compiler.compilations == 2
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "compiler.log"])


@needs_compiler
@pytest.mark.usefixtures("small")
def test_programs_need_not_be_loadable_from_the_temporary_folder(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = native._load

    def from_elsewhere(path: str) -> Any:
        if path.endswith("kernels.so"):
            raise NativeError("failed to map segment from shared object")  # as under a mount with noexec
        return load(path)

    monkeypatch.setattr(native, "_load", from_elsewhere)
    assert compile_library(compiler.command).answer() == 42
    (tmp_path / "cache").rename(tmp_path / "gone")
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with pytest.raises(NativeError, match="failed to map"):
        compile_library(compiler.command)


@needs_compiler
@pytest.mark.usefixtures("small")
def test_what_was_checked_is_what_is_loaded(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever takes the entry's place between the check and the loader."""
    load = native._load
    monkeypatch.setattr(native, "_load", lambda _: "loaded")  # the loader would not open a file that it has loaded
    compile_library(compiler.command)
    with monkeypatch.context() as patch:
        patch.setattr(native, "literals", lambda: {"ANSWER": "666"})
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        compile_library(compiler.command)
    (entry,), (other,) = entries(tmp_path), (tmp_path / "other" / "polar_pipeline").iterdir()

    def swapped(path: str) -> Any:
        other.replace(entry)
        return load(path)

    monkeypatch.setattr(native, "_load", swapped)
    assert compile_library(compiler.command).answer() == 42
    assert compiler.compilations == 2


@needs_compiler
@pytest.mark.usefixtures("small")
def test_a_temporary_folder_where_others_can_replace_ours_is_not_used(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "open"))
    monkeypatch.setenv("CXX", compiler.command[0])
    assert "cannot be compiled: other users can replace what is in" in without_kernels()
    assert compiler.compilations == 0


@needs_compiler
@pytest.mark.usefixtures("small")
def test_many_may_compile_at_once(compiler: Compiler, tmp_path: Path) -> None:
    answers: List[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(compile_library(compiler.command).answer())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [42] * 4
    (entry,) = entries(tmp_path)  # no parts are left behind
    assert entry.suffix == ".so"


# -------------------------------------------------------------------------------------- compilers that do not work


def without_kernels() -> str:
    """Why there are no kernels; the backend works all the same, and says so."""
    pipeline = Pipeline(products="intensity, dolp, ssim", backend="cpu")
    assert pipeline.device.endswith("OpenCV)")
    assert pipeline(RAW)["dolp"].shape == (16, 20)
    with pytest.raises(NativeError) as caught:
        find_library()
    (check,) = (check for check in doctor.run_checks() if check.topic == "cpu kernels")
    assert check.state == "missing"
    assert check.text.startswith(str(caught.value).splitlines()[0])
    return str(caught.value)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent/c++ -O1")
    assert "/nonexistent/c++): install build-essential" in without_kernels()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("CXX", "'g++")
    assert "CXX is no command: 'g++: No closing quotation" in without_kernels()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no C++ compiler (c++, g++ or clang++)" in without_kernels()


@needs_compiler
def test_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert re.search(f"cannot be compiled: .*{tmp_path}/none", without_kernels())


def test_without_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = Compiler(tmp_path / "compiler", "true")
    monkeypatch.setenv("CXX", broken.command[0])
    monkeypatch.setattr(native, "share_path", lambda *parts: Path("/nonexistent", *parts))
    assert "/nonexistent/kernels/cpu" in without_kernels()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[ "$1" = --version ] || { echo "internal error" >&2; exit 4; }', r"failed \(4\): internal error"),
        ("exit 1", r"failed \(1\)"),
        ('[ "$1" = --version ] || { while [ "$1" != -o ]; do shift; done; echo garbage > "$2"; }', "cannot be loaded"),
        ('[ "$1" = --version ] || { printf "\\033]0;title\\007" >&2; exit 4; }', r"failed \(4\): \\x1b\]0;title\\x07$"),
        ("true", r"cannot be compiled: .*kernels\.so"),
    ],
)
def test_a_broken_compiler(text: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = Compiler(tmp_path / "compiler", text)
    monkeypatch.setenv("CXX", broken.command[0])
    with pytest.raises(NativeError, match=words):
        find_library()
    before = broken.compilations
    without_kernels()
    assert broken.compilations == before  # not tried again
    native._found.cache_clear()
    with pytest.raises(NativeError, match=words):
        find_library()
    assert broken.compilations == 2 * before  # by another process it is, whatever was kept


@needs_compiler
@pytest.mark.usefixtures("small")
def test_a_library_without_the_kernels_is_refused(small: Path, compiler: Compiler) -> None:
    source = small / "kernels.cpp"
    text = source.read_text()
    for name in native._FUNCTIONS:
        source.write_text(text.replace(f"{name}(", "another("))
        with pytest.raises(NativeError, match=name):
            compile_library(compiler.command)


@pytest.mark.parametrize("error", [StoppedError, KeyboardInterrupt])
@pytest.mark.usefixtures("small")
def test_what_a_compiler_has_started_ends_with_it(error: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the process is asked to end, or the command line is interrupted."""
    second = tmp_path / "second"
    started = f"sleep 1000 & echo $! > {second}.part; mv {second}.part {second}; wait"
    slow = Compiler(tmp_path / "compiler", f'[ "$1" = --version ] || {{ {started}; }}')

    def is_set() -> bool:
        if second.exists() and error is KeyboardInterrupt:
            raise KeyboardInterrupt  # as a handler does, between two looks
        return second.exists()

    monkeypatch.setattr(native, "PROCESS_STOP", SimpleNamespace(is_set=is_set))
    monkeypatch.setenv("CXX", slow.command[0])
    with pytest.raises(error):
        Pipeline(backend="cpu")
    assert_gone(int(second.read_text()))


# ----------------------------------------------------------------------------------------------------------- the choice


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "opencv")
    assert without_kernels() == "POLAR_PIPELINE_CPU is opencv"
    monkeypatch.setenv(native.VARIABLE, "gpu")
    with pytest.raises(ValueError, match=r"compiled or opencv.*'gpu'"):
        Pipeline(backend="cpu")


@needs_compiler
@pytest.mark.usefixtures("small")
def test_the_backend_and_the_doctor_say_what_is_used() -> None:
    assert Pipeline(backend="cpu").device.endswith("compiled)")
    (check,) = (check for check in doctor.run_checks() if check.topic == "cpu kernels")
    assert check.state == "ok"
    assert find_compiler()[0] in check.text
