"""One table of options: the library, the command line, the node and the documentation show the same."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import yaml
from harness import CACHE

from polar_pipeline import Pipeline, cli
from polar_pipeline.live.parameters import PARAMETERS, make_settings
from polar_pipeline.options import OPTIONS, ContradictionError, Option, make_options
from polar_pipeline.options.methods import METHODS
from polar_pipeline.options.products import PRODUCTS
from polar_pipeline.polarimetry.colormaps import COLOR_STYLES

#: Options whose command line arguments have other names.
ARGUMENTS: Dict[str, Tuple[str, ...]] = {"co_sited": ("--no-co-sited",), "flip": ("--flip-x", "--flip-y")}
#: Options of a frame that `polar-pipeline plan` and `tune` have no use for.
OF_A_MACHINE = ("backend", "threads")


def joined(text: str) -> str:
    """Text with every run of whitespace as one space."""
    return " ".join(text.split())


def of_the_library() -> Dict[str, str]:
    """Argument of `Pipeline` -> what `help(Pipeline)` says of it."""
    text = inspect.getdoc(Pipeline.__init__) or ""
    block = text[text.index("Args:\n") + 6 :]
    parts = re.split(r"^    (\w+): ", block, flags=re.MULTILINE)[1:]
    return {name: joined(said) for name, said in zip(parts[::2], parts[1::2])}


def of_the_command_line(*command: str) -> Dict[str, str]:
    """Argument -> what `--help-all` says of it."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
        cli.main([*command, "--help-all"])
    text = out.getvalue()
    parts = re.split(r"^  (?:-\w [\w.{},]+, )?(--[\w-]+)", text[text.index("show this help") :], flags=re.MULTILINE)[1:]
    return {name: joined(said) for name, said in zip(parts[::2], parts[1::2])}


def test_the_library_takes_the_options_of_the_table() -> None:
    arguments = inspect.signature(Pipeline).parameters
    assert {name: row.default for name, row in arguments.items()} == {
        name: row.default for name, row in OPTIONS.items()
    }
    assert list(arguments) == list(OPTIONS)


def test_defaults_of_checked_options_are_those_of_the_table() -> None:
    found = make_options()
    for name, row in OPTIONS.items():
        if name == "sensor":
            assert found.sensor.name == row.default
        elif name == "dtype":
            assert found.dtype == tuple((product, row.default) for product in found.products)
        elif name == "calibration":
            assert (found.calibration, row.default) == (None, "")
        else:
            assert getattr(found, name) == row.default
    assert make_options(**found.arguments()) == found


def test_stored_values_are_accepted_again() -> None:
    options = make_options("IMX250MYR", "aolp,dolp,preview", dtype={"dolp": "uint8"}, roi_offset=[2, 4], threads=2)
    assert options.dtype == (("dolp", "uint8"), ("aolp", "float32"), ("preview", "uint8"))
    assert make_options(**options.arguments()) == options
    assert options.changed(products="dolp,ssim").dtype == (("dolp", "uint8"), ("ssim", "float32"))
    assert options.changed(co_sited=False) == replace(options, co_sited=False) != options
    with pytest.raises(ValueError, match=r"roi_offset must be in \[0, 65535\], got -1"):
        options.changed(roi_offset=(-1, 0))


def test_each_value_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: List[str] = []
    validate = Option.validate
    monkeypatch.setattr(Option, "validate", lambda row, *more: checked.append(row.name) or validate(row, *more))
    make_options(resolution="full")
    assert sorted(checked) == sorted(OPTIONS)
    checked.clear()
    make_settings({"resolution": "full"})
    assert len(checked) == len([*PARAMETERS, "products", "dtype", "output"])


CALLS = """
from polar_pipeline import Pipeline
Pipeline("IMX250MYR", ["dolp"], "cpu", dtype={"dolp": "uint8"}, roi=(0, 0, 8, 8), threads=1).options.sensor.tile()
Pipeline(sensor=3)
Pipeline(co_sited="yes")
Pipeline(roi=(1, 2))
Pipeline(nonsense=1)
Pipeline().options.sensor.nonsense
Pipeline(resolution="ful")
Pipeline(scale=3)
Pipeline(dtype={"dolp": "int8"})
Pipeline(resolution="full", scale=4, bit_depth=12, dtype=Pipeline().options.dtype)
"""


def test_type_checkers_see_the_arguments(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    (tmp_path / "calls.py").write_text(CALLS)
    words = ["--config-file=", "--follow-imports=silent", "--cache-dir", str(CACHE.parent / "mypy")]
    said, trouble, _ = api.run([*words, str(tmp_path / "calls.py")])
    lines = re.findall(r"calls\.py:(\d+): error", said)
    assert lines == ["4", "5", "6", "7", "8", "9", "10", "11"], said + trouble


def test_choices_are_those_of_the_tables() -> None:
    """Annotations, which type checkers read, cannot be computed from a table."""
    assert OPTIONS["demosaic"].choices == ("auto", *METHODS, "learned")
    assert OPTIONS["color_style"].choices == tuple(COLOR_STYLES)
    assert {*OPTIONS["dtype"].choices} == {kind for row in PRODUCTS.values() for kind in row.types}
    assert OPTIONS["ssim_window"].choices == tuple(range(3, 16, 2))
    assert not OPTIONS["sensor"].choices


def test_help_of_the_library() -> None:
    said = of_the_library()
    assert list(said) == list(OPTIONS)
    for name, row in OPTIONS.items():
        assert said[name].startswith(row.text), name


@pytest.mark.parametrize("command", ["replay", "process", "plan", "tune", "layout"])
def test_help_of_the_command_line(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5000")  # lines are broken at hyphens too
    said = of_the_command_line(command)
    left_out = {
        "replay": (),
        "process": ("ssim_mode",),
        "plan": OF_A_MACHINE,
        "tune": OF_A_MACHINE,
        "layout": set(OPTIONS) - {"sensor", "bit_depth", "alignment", "roi_offset", "flip"},
    }[command]
    for name, row in OPTIONS.items():
        if row.group == "library":
            continue
        for argument in ARGUMENTS.get(name, (f"--{name.replace('_', '-')}",)):
            if name in left_out:
                assert argument not in said
            else:
                assert row.text in said[argument], name
    if "co_sited" not in left_out:
        assert said["--no-co-sited"].startswith("Turn co_sited off. co_sited: At half resolution, interpolate")


def test_parameters_of_the_node() -> None:
    """`ros2 param describe` shows the text of `PARAMETERS`: see `test_parameters_are_described`."""
    rows = {name: row for name, row in PARAMETERS.items() if row in OPTIONS.values()}
    assert {row.name for row in rows.values()} == {*OPTIONS} - {"products", "dtype", "output"}
    for name, row in rows.items():
        assert row.name == name.rsplit(".", 1)[-1], "a folder may come before the option's name"


def test_ranges_are_in_the_texts() -> None:
    for name, row in OPTIONS.items():
        if row.limits and name not in ("bit_depth", "threads"):
            low, high = row.limits
            assert f"{low:g} to {high:g}" in row.text
        for word in row.choices:
            assert isinstance(word, int) or f"'{word}'" in row.text, name


# ------------------------------------------------------------------------------------------------- names of products


@pytest.mark.parametrize(
    "names",
    ["aolp,dolp", "aolp dolp", " aolp ,  dolp, ", "dolp\taolp\naolp", ["aolp", "dolp"], ("dolp", "aolp", "dolp")],
)
def test_products_are_separated_by_commas_or_spaces(names: Any) -> None:
    assert make_options(products=names).products == ("dolp", "aolp")


IMAGES = tuple(name for name in PRODUCTS if name != "ssim")
NOISE = {"dolp_sigma", "aolp_sigma", "significance"}


@pytest.mark.parametrize("sensor", ["IMX250MZR", "IMX250MYR"])
@pytest.mark.parametrize("changes", [{}, {"resolution": "full"}, {"dtype": "uint8", "debias": True}, {"scale": 2}])
def test_all_products_are_the_images_that_can_be_computed(sensor: str, changes: Dict[str, Any]) -> None:
    raw = np.random.default_rng(0).integers(30, 220, (48, 64), np.uint8)
    expected = [name for name in IMAGES if not (changes == {"scale": 2} and name in NOISE)]
    with Pipeline(sensor, "all", "cpu", **changes) as pipeline:
        result = pipeline(raw)
    assert list(result) == list(pipeline.options.products) == expected
    assert all(array.ndim >= 2 for array in result.values())


def test_all_products_and_others() -> None:
    assert make_options(products="all, ssim").products == tuple(PRODUCTS)
    assert make_options(products=["dolp", "all"]).products == IMAGES
    for geometry in ({"scale": 2}, {"rotate": 90}, {"roi": (0, 0, 8, 8)}, {"rectify": "camera_info"}):
        products = make_options(products="all", dtype="uint8", **geometry).products
        assert products == tuple(name for name in IMAGES if name not in NOISE)
        with pytest.raises(ContradictionError, match="dolp_sigma: the noise of a pixel is known"):
            make_options(products="all,dolp_sigma", **geometry)
    assert make_options(**make_options(products="all").arguments()).products == IMAGES


# --------------------------------------------------------------------------------------------------------- misspelled


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sensr": "IMX250MZR"}, "did you mean sensor"),
        ({"product": "dolp"}, "unknown option .'product'.*; did you mean products[?]$"),
        ({"roi_ofset": (2, 2)}, "did you mean roi_offset[?]$"),
        ({"products": "dolp alop"}, "got 'alop'; did you mean aolp"),
        ({"products": "al"}, "got 'al'; did you mean all"),
        ({"products": ["Intensity"]}, "got 'Intensity'; did you mean intensity"),
        ({"dtype": {"dolb": "uint8"}}, "did you mean dolp"),
        ({"dtype": "unit8"}, "dtype of intensity must be .*; did you mean uint8"),
        ({"resolution": "ful"}, "resolution must be one of half, full, got 'ful'; did you mean full[?]"),
        ({"demosaic": "adaptiv"}, "did you mean adaptive"),
        ({"resolution": "nothing like it"}, "got 'nothing like it'$"),
        ({"bit_depth": 7}, "got 7$"),
    ],
)
def test_misspelled_names_and_values_are_answered_with_similar_ones(values: Dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_options(**values)


def test_words_that_yaml_reads_as_truth_values() -> None:
    """`denoise: on` in a file of parameters, and `ros2 param set NODE denoise off`, arrive as true and false."""
    read = yaml.safe_load("{denoise: on, other: off}")
    assert make_options(denoise=read["denoise"]).denoise == "on"
    assert make_options(denoise=read["other"]).denoise == "off"
    with pytest.raises(ValueError, match="must be one of auto, bilinear, gradient, adaptive, learned, got True"):
        make_options(demosaic=True)
