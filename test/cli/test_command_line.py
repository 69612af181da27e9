"""The parser of the tool: help, words that are not known, names of products, and completions of a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import cv2
import numpy as np
import pytest
from support import ROOT, run_python

from polar_pipeline import __version__, cli
from polar_pipeline.cli.command_table import COMMANDS

#: The commands in the order of use, with those that have commands of their own.
NAMES = (
    *("process", "view", "replay", "batch", "compress", "decompress"),
    *("camera", "capture", "layout", "calibrate", "simulate", "play", "env", "doctor", "bench", "plan", "tune"),
)
PARTS = ("bench node", "camera list", "camera info", "camera set")
_ARGUMENT = re.compile(r"^  (-.*?)(?:  |$)", re.MULTILINE)


def output_of(arguments: List[str], capsys: Any, code: int = 0) -> str:
    """Return what the tool prints when argparse ends it with this exit code."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    shown = capsys.readouterr()
    assert stop.value.code == code, shown.err
    return str(shown.err if code else shown.out)


# ----------------------------------------------------------------------------------------------------------------- help


def test_the_help_lists_the_commands_in_the_order_of_use(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = output_of(["--help"], capsys)
    assert tuple(re.findall(r"^    (\w+) ", text, re.MULTILINE)) == NAMES
    assert text.count("\n") <= 50
    assert max(map(len, text.splitlines())) <= 100
    assert output_of(["--version"], capsys) == f"polar-pipeline {__version__}\n"


@pytest.mark.parametrize("name", [*NAMES, *PARTS])
def test_every_command_has_a_help_of_one_screen(name: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that is left out of the short help is in the complete one; examples can be parsed."""
    monkeypatch.setenv("COLUMNS", "100")
    short, complete = (output_of([*name.split(), option], capsys) for option in ("--help", "--help-all"))
    assert short.startswith(f"usage: polar-pipeline {name} ")
    assert short.count("\n") <= 50, "name rare arguments in `command_table.py`"
    assert max(map(len, short.splitlines())) <= 100
    arguments, known = _ARGUMENT.findall(short), _ARGUMENT.findall(complete)
    assert [row for row in known if row in arguments] == [row for row in arguments if row != "--help-all"]
    assert ("--help-all" in arguments) == (set(known) > {*arguments} - {"--help-all"})
    if name in COMMANDS:
        parser = cli.make_parser(name)
        for line in COMMANDS[name].examples:
            tool, command, *_ = words = shlex.split(line)
            assert (tool, command) == ("polar-pipeline", name)
            parser.parse_args(words[1:])
            assert f"\n  {line}" in short


def test_arguments_of_a_pipeline_are_in_groups(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = output_of(["replay", "--help-all"], capsys)
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles[-6:] == ["raw frames", "products", "SSIM", "geometry", "machine", "examples"]
    sections = dict(zip(titles, re.split(r"^\S.*:$", text, flags=re.MULTILINE)[1:]))
    firsts = {title: re.findall(r"--[\w-]+", section)[0] for title, section in sections.items() if "--" in section}
    assert firsts["raw frames"] == "--sensor"
    assert firsts["products"] == "--products"
    assert firsts["SSIM"] == "--ssim-mode"
    assert firsts["geometry"] == "--scale"
    assert firsts["machine"] == "--backend"


# --------------------------------------------------------------------------------------------- words that are not known


@pytest.mark.parametrize(
    ("line", "usage", "message"),
    [
        ("proces x.png", "", "invalid choice: 'proces' .*; did you mean process[?]"),
        ("process x.png --prodcts dolp", "process", "unrecognized arguments: --prodcts; did you mean --products[?]"),
        ("process --prodcts dolp x.png", "process", "unrecognized arguments: --prodcts; did you mean --products[?]"),
        ("process --prodcts=dolp", "process", "unrecognized arguments: --prodcts; did you mean --products[?]"),
        ("calibrate frames --outptu a.npz", "calibrate", "unrecognized arguments: --outptu; did you mean --output"),
        ("bench node --second 3 --sensors x", "bench node", "unrecognized arguments: --sensors; did you mean --sensor"),
        ("camera lst", "camera", "invalid choice: 'lst' .*; did you mean list[?]"),
        ("process x.png --backend CDUA", "process", "invalid choice: 'CDUA' .*; did you mean cuda[?]"),
        ("process x.png --products dop", "process", "got 'dop'; did you mean dolp[?]"),
        ("process x.png --products dolp alop", "process", "unrecognized arguments: alop; did you mean aolp[?]"),
        ("replay x --compare y --tolerance dlp=1", "replay", "got 'dlp=1'; did you mean dolp[?]"),
        # arguments of a command before its name
        ("--products dolp process x.png", "process", "arguments of process follow its name; --products is before it"),
        ("-o out process x.png", "process", "arguments of process follow its name; -o is before it"),
        ("--json doctor", "doctor", "arguments of doctor follow its name; --json is before it"),
        ("--nothing", "", "unrecognized arguments: --nothing"),
        # an argument of another command, and one too many
        ("layout raw.png --products dolp", "layout", "unrecognized arguments: --products"),
        ("decompress a.mcap b.mcap -o c.mcap", "decompress", "unrecognized arguments: b.mcap"),
    ],
)
def test_unknown_words_show_the_usage_of_the_command_that_was_meant(
    line: str, usage: str, message: str, capsys: Any
) -> None:
    said = output_of(line.split(), capsys, 2)
    assert re.match(f"usage: polar-pipeline {usage} ?\\[-h\\]", said)
    assert re.search(f"polar-pipeline ?{usage}: error: .*{message}", said)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan --sensor IMX250MRZ", "sensor must be one of .*; did you mean IMX250MZR"),
        ("plan --sensor TRI050-P", "the model of a camera .*; did you mean TRI050S-P"),
    ],
)
def test_wrong_values_name_similar_ones(line: str, message: str, capsys: Any) -> None:
    assert cli.main(line.split()) == 2
    assert re.search(message, capsys.readouterr().err)


# ------------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(
    "words",
    [
        "x.png --products dolp,aolp",
        "x.png --products dolp aolp",
        "--products dolp aolp x.png",
        "--products dolp, aolp x.png",
        "--products dolp , aolp x.png",
        "--products=dolp aolp x.png",
        "--products 'aolp dolp' x.png",
        "--products dolp aolp --strict x.png",
        "--products dolp aolp -- x.png",
        "--products aolp --products dolp aolp x.png",
        "--prod dolp aolp x.png",
    ],
)
def test_products_may_be_separated_by_spaces(words: str) -> None:
    values = cli.make_parser("process").parse_args(["process", *shlex.split(words)])
    assert values.products == ("dolp", "aolp")
    assert "x.png" in repr(values)


def test_a_picture_with_the_name_of_a_product_is_not_taken_for_one(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dolp").mkdir()
    said = output_of(["process", "--products", "intensity", "dolp", "x.png"], capsys, 2)
    assert "dolp is a product and a path here: write intensity,dolp or ./dolp" in said
    parse = cli.make_parser("process").parse_args
    assert parse(["process", "--products", "intensity", "./dolp"]).products == ("intensity",)
    assert parse(["process", "--products", "intensity,dolp", "x.png"]).products == ("intensity", "dolp")


def test_all_products_of_a_picture(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "raw.png"), np.random.default_rng(0).integers(40, 200, (64, 64), np.uint8))
    words = ["--products", "all", "--backend", "cpu", "-o", str(tmp_path / "out")]
    assert cli.main(["process", str(tmp_path / "raw.png"), *words]) == 0
    assert any("dolp_sigma" in path.name for path in (tmp_path / "out").iterdir())
    assert cli.main(["process", str(tmp_path / "raw.png"), *words, "--force", "--rotate", "90"]) == 0


# ---------------------------------------------------------------------------------------------------------- completions


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("polar-pipeline pro", {"process"}),
        ("polar-pipeline process --ssim-s", {"--ssim-stride", "--ssim-sigma"}),  # those of `--help-all` too
        ("polar-pipeline replay x.mcap --backend c", {"cpu", "cuda"}),
    ],
)
def test_a_shell_completes_the_command_line(line: str, expected: Any, tmp_path: Path) -> None:
    """The shell's side of argcomplete: the line in the environment, and the words in a file."""
    pytest.importorskip("argcomplete")
    out = tmp_path / "words"
    variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, **variables, "_ARGCOMPLETE_STDOUT_FILENAME": str(out), "COMP_TYPE": "9"}
    subprocess.run([sys.executable, "-m", "polar_pipeline"], env=environment, cwd=ROOT, check=True, timeout=60)
    assert set(re.split(r"\s+", out.read_text(encoding="utf-8").strip())) == expected


def test_a_shell_that_asks_without_argcomplete_gets_nothing_wrong() -> None:
    script = (
        "import os, sys\n"
        "sys.modules['argcomplete'] = None\n"
        "os.environ.update(_ARGCOMPLETE='1', COMP_LINE='polar-pipeline pro')\n"
        "from polar_pipeline import cli\n"
        "cli.main(['--version'])\n"
    )
    assert run_python("-c", script).stdout == f"polar-pipeline {__version__}\n"
