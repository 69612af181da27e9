"""Files that people write: whatever is in them, they are read, or refused in one line that names them."""
# ruff: noqa: E402 - yaml may be missing

from __future__ import annotations

import math
import os
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, List, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import changed

yaml = pytest.importorskip("yaml")

from polar_pipeline._util.documents import MAX_DOCUMENT_BYTES, read_json
from polar_pipeline._util.yamlfile import MAX_NODES, read_yaml
from polar_pipeline.live.parameters import MAX_TEXT, PARAMETERS
from polar_pipeline.live.preset import check_parameters, from_yaml, read_nodes, to_yaml
from polar_pipeline.ros.rig import read_rig

READERS: List[Callable[[Path], Any]] = [read_yaml, read_nodes, from_yaml, read_rig, read_json]
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefghij", "bcdefghijk")
)
#: What no reader of YAML takes, and what is said about it.
BROKEN = {
    "a mapping in itself": ("&a {b: *a}", "nested more than"),
    "a mapping merged into itself": ("&a {<<: *a}", "nested more than"),
    "aliases of aliases": (LAUGHS, "more than 20000 values"),
    "merges of merges": (LAUGHS.replace("[", "{<<: [").replace("]", "]}"), "more than 20000 values"),
    "brackets": ("[" * 3000, "cannot be read"),
    "many values": ("[1" + ",1" * MAX_NODES + "]", "more than 20000 values"),
    "too large a float": (f"a: 1{':1' * 200}.5", "cannot be read"),
    "a tag of Python": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "no integer": ('a: !!int ""', "cannot be read"),
    "list as a key": ("? [1]\n: 2", "unhashable key"),
    "key twice": ("a: 1\na: 2", "line 2: the key a occurs twice"),
    "key twice further in": ("a: {b: 1, c: [{d: 1, d: 2}]}", "the key d occurs twice"),
    "two documents": ("a: 1\n---\nb: 2", "line 2: but found another document"),
    "NUL": ("a: \0", "#x0000"),
    "no UTF-8": (b"a: \xff\xfe\x00", "invalid start byte"),
    "unknown alias": ("a: *b", "line 1: found undefined alias"),
    "too large": (b"# " + b"x" * MAX_DOCUMENT_BYTES, f"more than {MAX_DOCUMENT_BYTES} bytes"),
}


def write(path: Path, text: Union[str, bytes]) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(reader: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(ValueError, match=path.name) as caught:
        reader(path)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 600
    return said


# ------------------------------------------------------------------------------------------------------- any document


@pytest.mark.parametrize("name", BROKEN)
def test_broken_yaml(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    assert said in refused(read_yaml, write(tmp_path / "some.yaml", text))


@pytest.mark.parametrize("text", ["[" * 100_000, "{", b"\xff", "", b" " * (MAX_DOCUMENT_BYTES + 1)])
def test_broken_json(tmp_path: Path, text: Union[str, bytes]) -> None:
    assert "some.json cannot be read: " in refused(read_json, write(tmp_path / "some.json", text))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_what_is_no_file(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    assert "No such file" in refused(reader, tmp_path / "none.yaml")
    assert "not a regular file" in refused(reader, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(reader, tmp_path / "pipe")
    for name in ("x" * 1000, "a\0b"):
        with pytest.raises(ValueError, match="cannot be read"):
            reader(tmp_path / name)


def test_yaml_as_pyyaml_reads_it(tmp_path: Path) -> None:
    text = """
a: &a {x: 1, y: 0x1f, z: 010, f: 1.5, t: yes, n: ~, i: .inf, s: 'off', b: 1_000, o: 1:30}
p: {q: &b {<<: *a, x: 2}}
b: {<<: *b, y: 3}
c: [*a, "\\u00e9", é, 0b11]
? 5
: {}
true: []
"""
    assert read_yaml(write(tmp_path / "some.yaml", text)) == yaml.safe_load(text)
    assert read_yaml(write(tmp_path / "some.yaml", text.encode("utf-16"))) == yaml.safe_load(text)
    assert read_yaml(write(tmp_path / "some.yaml", "# nothing")) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01T10:00:00Z", "2020-01-01T10:00:00Z"),
        ("1e-3", 0.001),
        ("-2.5E3", -2500.0),
        (".5e1", 5.0),
        ("'1e3'", "1e3"),
        ("1e3x", "1e3x"),
    ],
)
def test_values_as_ros_reads_them(tmp_path: Path, text: str, value: object) -> None:
    found = read_yaml(write(tmp_path / "some.yaml", f"a: {text}"))["a"]
    assert (type(found), found) == (type(value), value)


@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="[]{}&*!<>:?-|'\"%@`#, \n\ta1.0~\\", max_size=200).map(str.encode),
    )
)
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "some.yaml", data)
    for reader in READERS:
        with suppress(ValueError):
            reader(path)


# --------------------------------------------------------------------------------------------------------- parameters


def test_nodes_of_a_file_as_ros_names_them(tmp_path: Path) -> None:
    text = """
/**: {ros__parameters: {raw: {bit_depth: 12}}}
/front:
  eye: {ros__parameters: {raw.flip: [true, false]}}
  left: {lens: {ros__parameters: {}}}
/other: {}
"""
    assert read_nodes(write(tmp_path / "some.yaml", text)) == {
        "/**": {"raw.bit_depth": 12},
        "/front/eye": {"raw.flip": [True, False]},
        "/front/left/lens": {},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names of nodes"),
        ("- a", "names of nodes"),
        ("resolution: full", "resolution must have names of nodes, then ros__parameters; got 'full'"),
        ("ros__parameters: {}", "below a node's name"),
        ("a: {ros__parameters: [1]}", "below a node's name, got [1]"),
        ("1: {ros__parameters: {}}\n2: {ros__parameters: {}}", "the name of a node must be text, got 1"),
        ("a: {ros__parameters: {}, b: 1}", "a/b must have names of nodes"),
        ("/a: {b: {ros__parameters: {}}}\n/a/b: {ros__parameters: {}}", "the node /a/b occurs twice"),
        ("a: {ros__parameters: {raw: {flip: 1}, raw.flip: 2}}", "the parameter raw.flip occurs twice"),
        (f"a: {{ros__parameters: {{? {'x' * 100_000} : {{a: 1}}}}}}", "a name has 100000 characters"),
    ],
)
def test_what_are_no_parameters(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(read_nodes, write(tmp_path / "some.yaml", text))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("threads: true", "threads must be a number, got True"),
        ("min_intensity: .nan", "min_intensity must be in [0, 2), the range of S0, got nan"),
        ("resolution: {a: 1}", "no parameter of this package is called resolution.a"),
        ("resolutoin: full", "no parameter of this package is called resolutoin; did you mean resolution"),
        ("frame_id: [5]", "frame_id must be text"),
        ('snapshot: {folder: "\\0"}', "without NUL"),
        ("display: {gain: {a: 1}}", "called display.gain.a"),
        ("use_sim_time: 1", "use_sim_time must be true or false, got 1"),
        ("qos_overrides: {a: ~}", "qos_overrides.a must be a truth value, a number or text, got None"),
        ("? !!binary aGk=\n    : 2", "called b'hi'"),
    ],
)
def test_wrong_parameters(tmp_path: Path, parameters: str, said: str) -> None:
    path = write(tmp_path / "some.yaml", f"/**:\n  ros__parameters:\n    {parameters}\n")
    assert said in refused(from_yaml, path)
    indented = parameters.replace("\n", "\n  ")
    rig = write(tmp_path / "rig.yaml", f"cameras:\n  - {{}}\n  - namespace: a\n    parameters:\n      {indented}\n")
    assert said in refused(read_rig, rig)
    assert "rig.yaml: camera 2: " in refused(read_rig, rig)


def test_parameters_of_several_nodes_are_not_those_of_one(tmp_path: Path) -> None:
    path = write(tmp_path / "some.yaml", "a: {ros__parameters: {}}\nb: {ros__parameters: {}}")
    assert "several nodes: a, b" in refused(from_yaml, path)


def test_parameters_that_every_node_has(tmp_path: Path) -> None:
    text = """
/**:
  ros__parameters:
    use_sim_time: true
    start_type_description_service: false
    qos_overrides: {/image_raw: {subscription: {depth: 5, reliability: reliable}}}
    min_intensity: 1e-2
    snapshot: {folder: 2020-01-01}
    display: {gain: 2, white_balance: [1, 2, 3]}
"""
    found = changed(from_yaml(write(tmp_path / "some.yaml", text)))
    assert found == {"snapshot.folder": "2020-01-01", "display.gain": 2, "display.white_balance": [1, 2, 3]}


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
WHOLE = st.integers(-(2**63), 2**63 - 1)
KINDS = {str: TEXTS, bool: st.booleans(), int: WHOLE, float: st.floats()}
ALONE = st.one_of(*KINDS.values())
LISTS = st.one_of(*(st.lists(kind, min_size=1, max_size=5) for kind in KINDS.values()))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (math.isnan(one) and math.isnan(other)))


@given(values=st.dictionaries(st.sampled_from(list(PARAMETERS)), ALONE | LISTS), title=st.text())
def test_what_is_written_is_read(tmp_path: Path, values: Any, title: str) -> None:
    """Also what this version of a node refuses: another one may have it."""
    text = to_yaml(values, title)
    assert all(line.isprintable() for line in text.splitlines())
    (parameters,) = read_nodes(write(tmp_path / "some.yaml", text)).values()
    assert set(parameters) == set(values)
    assert all(same(values[name], parameters[name]) for name in values)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "x" * (MAX_TEXT + 1),
        "a\0b",
        "\ud800",
        2**63,
        [],
        [1, 2.5],
        [[1]],
        [1] * 1001,
        array("q", [1] * 10**6),
        [b"a"],
        {"a": 1},
        object(),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, int) else "number",
)
def test_no_node_can_have_it(value: object) -> None:
    with pytest.raises(ValueError, match="frame_id must be text") as caught:
        check_parameters({"frame_id": value})
    assert len(str(caught.value)) < 600


def test_a_title_stays_a_comment() -> None:
    text = to_yaml({}, "front\n/**: {ros__parameters: {threads: 3}}\x1b[2J")
    assert text.splitlines()[0] == r"# front\n/**: {ros__parameters: {threads: 3}}\x1b[2J"
    assert yaml.safe_load(text) == {"/**": {"ros__parameters": {}}}
