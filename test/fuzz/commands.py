"""Target: the command line, in this process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import random
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Set

import cv2
import numpy as np

from fuzz import containers
from fuzz.engine import Case, Target, WrongError, is_out_of_memory
from fuzz.mutate import words
from polar_pipeline import cli, messages
from polar_pipeline.replay.sink import open_sink
from polar_pipeline.ros.preset import to_yaml
from polar_pipeline.topics import PRODUCT_TOPICS

#: Commands that take minutes, a GPU or a robot: their arguments are checked, and nothing is done.
_LONG = ("tune", "bench", "play", "simulate")
_FILES = words(
    r"""
    raw.png  raw16.png  raw.npy  bad.png  in.mcap  golden.mcap  bad.mcap  in.db3  params.yaml  none  pictures
    out.mcap  out.html  empty.mcap  locked/out.mcap  locked  link.mcap  .  /dev/null  raw.png/x  out  bad.yaml  out/
    -  folder.mcap
    """
)
_FILES += ["x" * 300, "a\udc80b.mcap", "\x1b[2J.mcap", ""]
_VALUES = words(
    r"""
    0  1  -1  2  3  8  11  12  15  16  0.5  1.5  1e-3  1e400  nan  inf  -inf  999999999999999999  0x10  1_0  --  -o
    @file  é  dolp  dolp,aolp  ssim  IMX250MYR  90 45 / 135 0  half  full  uint8  reference  temporal  msb  dolp=1
    dolp=nan  aolp=-1  %s  32x32  16x16  65535x4096  2448x2048  0x0  1e3x1e3  100000x100000  sm_72  sm_90  xavier
    orin  h200  {}
    """
)
_VALUES += ["9" * 5000, "", " ", "\x1b[2J", "\udc80", "x" * 5000]
_COMMANDS = (
    ["replay"] * 6
    + ["process"] * 4
    + ["layout"] * 2
    + ["plan"] * 2
    + ["calibrate", "compress"] * 2
    + ["decompress"]
    + ["simulate", "play", "tune", "bench node", "env", "doctor"]
)


def _options(parser: Any) -> Dict[str, List[Any]]:
    """Command -> its arguments, as argparse knows them."""
    found: Dict[str, List[Any]] = {}

    def look(parser: Any, name: str) -> None:
        below = [row for row in parser._actions if getattr(row, "choices", None) and hasattr(row, "add_parser")]
        for row in below:
            for word, inner in row.choices.items():
                look(inner, f"{name} {word}".strip())
        if not below:
            found[name] = [row for row in parser._actions if row.dest != "help"]

    look(parser, "")
    return found


class Commands(Target):
    """Arguments made from the parser's own options, and hostile values."""

    name = "commands"
    patience = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._options = _options(cli.make_parser())
        self._seed = folder / "seed"
        self._work = folder / "work"
        self._make_files()
        if find_spec("cupy") is not None:  # `doctor` loads CUDA's libraries; their memory is no input's
            self.run(Case("json", b'["doctor"]'))

    def _make_files(self) -> None:
        folder = self._seed
        (folder / "pictures").mkdir(parents=True)
        (folder / "folder.mcap").mkdir()
        raw = np.kron(containers.smooth(0), np.ones((2, 2), np.uint8))
        wide = raw.astype(np.uint16) * 250
        for name, array in (("raw.png", raw), ("raw16.png", wide), ("pictures/a.png", raw), ("pictures/b.pgm", raw)):
            (folder / name).write_bytes(bytes(cv2.imencode(Path(name).suffix, array)[1]))
        np.save(str(folder / "raw.npy"), raw)
        for name in ("bad.png", "bad.mcap", "bad.yaml", "in.db3"):
            (folder / name).write_bytes(b"\x89PNG[nonsense" * 9)
        rows = tuple(
            (containers.START + k, 1, bytes(messages.encode_image(containers.START + k, "cam", "mono8", raw)))
            for k in range(2)
        )
        (folder / "in.db3").write_bytes(containers.database(rows, 0))
        with open_sink(folder / "in.mcap", {}) as sink:
            for time_ns, _, data in rows:
                sink.write("/images", messages.IMAGE, time_ns, data)
        with open_sink(folder / "golden.mcap", {}) as sink:
            for time_ns, _, _ in rows:
                for name in ("dolp", "intensity"):
                    kind, data = messages.product_message(name, np.full((16, 18), 0.5, np.float32), time_ns, "cam")
                    sink.write(f"/{PRODUCT_TOPICS[name].name}", kind, time_ns, data)
        with open_sink(folder / "empty.mcap", {}):
            pass
        (folder / "params.yaml").write_text(to_yaml({"resolution": "full"}, "fuzz"), encoding="utf-8")
        (folder / "link.mcap").symlink_to("in.mcap")
        shutil.copytree(str(folder), str(self._work), symlinks=True)
        self._before = _hashes(self._work)

    def make(self, rng: random.Random) -> Case:
        command = rng.choice(_COMMANDS)
        words = command.split() if rng.random() < 0.98 else [rng.choice(_VALUES)]
        rows = self._options.get(command, [])
        for row in rows:
            if not row.option_strings:
                words.append(
                    rng.choice(
                        _FILES if rng.random() < 0.4 else ("raw.png", "in.mcap", "pictures", "raw16.png", "in.db3")
                    )
                )
        if command in ("replay", "compress", "decompress") and rng.random() < 0.7:
            words += ["-o", rng.choice(("out.mcap", "out.mcap", rng.choice(_FILES)))]
        if command == "calibrate" and rng.random() < 0.9:
            words += ["-o", rng.choice(("out.npz", "out.npz", rng.choice(_FILES)))]
        if command == "process" and rng.random() < 0.7:
            words += ["-o", rng.choice(("out", rng.choice(_FILES)))]
        named = [row for row in rows if row.option_strings]
        for row in rng.sample(named, min(len(named), rng.choice((0, 1, 1, 2, 2, 3, 5)))):
            words.append(rng.choice(row.option_strings))
            count = 2 if row.nargs == 2 else 0 if row.nargs == 0 else 1
            words += [self._value(rng, row) for _ in range(count)]
        if rng.random() < 0.05:
            words.insert(rng.randrange(len(words) + 1), rng.choice(_VALUES))
        if rng.random() < 0.05 and words:
            del words[rng.randrange(len(words))]
        return Case("json", json.dumps(words).encode())

    @staticmethod
    def _value(rng: random.Random, row: Any) -> str:
        if row.type is Path:
            return rng.choice(_FILES)
        if row.choices and rng.random() < 0.8:
            return str(rng.choice(list(row.choices)))
        return rng.choice(_VALUES)

    def run(self, case: Case) -> str:
        words = json.loads(case.data)
        out, err = io.StringIO(), io.StringIO()
        before = Path.cwd()
        modules = [importlib.import_module(f"polar_pipeline.cli.{name}") for name in _LONG]
        commands = [module.COMMAND for module in modules]
        os.chdir(str(self._work))
        locked = self._work / "locked"
        locked.mkdir(mode=0o500)
        try:
            for module in modules:
                module.COMMAND = replace(module.COMMAND, run=lambda _: 0)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code: Any = cli.main(words)
                except SystemExit as end:
                    code = end.code
        finally:
            for module, command in zip(modules, commands):
                module.COMMAND = command
            os.chdir(str(before))
            changed = self._restore()
        _check(code, out.getvalue(), err.getvalue())
        if changed and "--force" in words:  # which is there to replace what is only written
            inputs = self._inputs(words)
            changed = [name for name in changed if inputs & {Path(name), *Path(name).parents}]
        if changed:
            raise WrongError(f"inputs were changed: {', '.join(changed)[:300]}")
        return "accepted" if code == 0 else f"refused: exit {code}"

    def _inputs(self, words: List[str]) -> Set[Path]:
        """What a command reads, below the folder, links followed."""
        values = cli.make_parser().parse_args(words)
        given = [getattr(values, name, None) for name in ("source", "image", "compare", "reference", "params")]
        real = [(self._work / path).resolve() for path in given if path is not None]
        return {path.relative_to(self._work) for path in real if self._work in path.parents}

    def _restore(self) -> List[str]:
        """Put the folder in order again; gives back the inputs that are not what they were."""
        now = _hashes(self._work)
        changed = [name for name, digest in self._before.items() if now.get(name) != digest]
        if now != self._before or len(list(self._work.iterdir())) != len(list(self._seed.iterdir())):
            shutil.rmtree(str(self._work))
            shutil.copytree(str(self._seed), str(self._work), symlinks=True)
        return changed


def _hashes(folder: Path) -> Dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _check(code: Any, out: str, err: str) -> None:
    if code not in (0, 1, 2):
        raise WrongError(f"exit code {code!r}; stderr {err[:300]!r}")
    if "Traceback" in err or "is a defect of" in err:
        raise WrongError(f"a traceback: {err[-600:]!r}")
    if is_out_of_memory(RuntimeError(err)) or "not enough memory" in err:
        raise WrongError(f"memory ran out: {err[:300]!r}")
    if not (out + err).replace("\n", "").replace("\t", "").isprintable():
        raise WrongError(f"not printable: {(out + err)[:300]!r}")
    if code and not err and not out:
        raise WrongError(f"exit code {code} without a word")
    usage = err.index("polar-pipeline") if err.startswith("usage") else 0
    if len(err) - usage > 6000:
        raise WrongError(f"{len(err)} characters on stderr: {err[:300]!r}")
