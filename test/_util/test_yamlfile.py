"""Files that people write: whatever is in them, they are read, or refused in one line that names them."""
# ruff: noqa: E402 - yaml may be missing

from __future__ import annotations

import itertools
import json
import math
import os
from array import array
from pathlib import Path
from typing import Any, Callable, List, Union

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import changed, examples, representative

yaml = pytest.importorskip("yaml")

from polar_pipeline._util.documents import MAX_DOCUMENT_BYTES, read_json
from polar_pipeline._util.yamlfile import MAX_NODES, read_yaml
from polar_pipeline.live.parameters import MAX_TEXT, PARAMETERS
from polar_pipeline.live.preset import check_parameters, flatten, from_yaml, read_nodes, to_yaml
from polar_pipeline.ros.rig import read_rig

READERS: List[Callable[[Path], Any]] = [read_yaml, read_nodes, from_yaml, read_rig]
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefghij", "bcdefghijk")
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in zip("abcdefghij", "bcdefghijk")
)
#: What no reader of YAML takes, and what is said about it.
BROKEN = {
    "a list in itself": ("a: &a [*a]", "nested more than"),
    "a mapping in itself": ("&a {b: *a}", "nested more than"),
    "a mapping merged into itself": ("&a {<<: *a}", "nested more than"),
    "aliases of aliases": (LAUGHS, "more than 20000 values"),
    "merges of merges": (MERGES, "more than 20000 values"),
    "aliases one below the other": (
        "".join(f"- &a{n} {'[' * 30}{f'*a{n - 1}' if n else ''}{']' * 30}\n" for n in range(9)),
        "nested more than",
    ),
    "brackets": ("[" * 3000, "nested more than"),
    "many values": ("[1" + ",1" * MAX_NODES + "]", "more than 20000 values"),
    "long number": ("a: " + "9" * 5000, "a number has 5000 digits"),
    "long hexadecimal number": ("a: 0x" + "f" * 500_000, "a number has 500002 digits"),
    "too large a float": (f"a: 1{':1' * 200}.5", "does not fit its tag"),
    "a tag of Python": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "no integer": ('a: !!int ""', "does not fit its tag"),
    "no mapping": ("a: !!map [1]", "expected a mapping"),
    "list as a key": ("? [1]\n: 2", "unhashable key"),
    "key twice": ("a: 1\na: 2", "line 2: the key a occurs twice"),
    "key twice further in": ("a: {b: 1, c: [{d: 1, d: 2}]}", "the key d occurs twice"),
    "two documents": ("a: 1\n---\nb: 2", "expected a single document"),
    "tab": ("a:\n\tb: 1", "cannot start any token"),
    "NUL": ("a: \0", "#x0000"),
    "no UTF-8": (b"a: \xff\xfe\x00", "invalid start byte"),
    "half of UTF-16": ("a: 1".encode("utf-16")[:-1], "cannot be read"),
    "no character": ('a: "\\U00110000"', "cannot be read"),
    "unknown alias": ("a: *b", "line 1, column 4: found undefined alias"),
    "open bracket": ("a: [", "line 1"),
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


def read_or_refused(reader: Callable[[Path], Any], path: Path) -> None:
    try:
        reader(path)
    except ValueError:
        refused(reader, path)


# ------------------------------------------------------------------------------------------------------- any document


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "reader"),
    representative(list(itertools.product(BROKEN, READERS)), lambda row: row),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_broken_yaml(tmp_path: Path, name: str, reader: Callable[[Path], Any]) -> None:
    text, said = BROKEN[name]
    assert said in refused(reader, write(tmp_path / "some.yaml", text))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reader", [*READERS, read_json], ids=lambda reader: reader.__name__)
def test_what_is_no_file(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    assert "No such file" in refused(reader, tmp_path / "none.yaml")
    assert "no regular file" in refused(reader, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refused(reader, tmp_path / "pipe")
    assert "no regular file" in refused(reader, Path("/dev/zero"))
    assert "Not a directory" in refused(reader, write(tmp_path / "a", "a") / "b")
    with pytest.raises(ValueError, match=r"File name too long"):
        reader(tmp_path / ("x" * 1000))
    for name in ("a\0b", "a\ud800b"):
        with pytest.raises(ValueError, match="cannot be read"):
            reader(tmp_path / name)
    with (tmp_path / "huge.yaml").open("wb") as stream:
        stream.truncate(1 << 40)
    assert f"more than {MAX_DOCUMENT_BYTES} bytes" in refused(reader, tmp_path / "huge.yaml")


def test_yaml_as_pyyaml_reads_it(tmp_path: Path) -> None:
    text = """
a: &a {x: 1, y: 0x1f, z: 010, f: 1.5, t: yes, n: ~, i: .inf, s: 'off', b: 1_000, o: 1:30}
b: {<<: *a, x: 2}
c: [*a, "\\u00e9", é, 0b11]
? 5
: {}
true: []
"""
    assert read_yaml(write(tmp_path / "some.yaml", text)) == yaml.safe_load(text)
    for encoding in ("utf-8-sig", "utf-16"):
        assert read_yaml(write(tmp_path / "some.yaml", text.encode(encoding))) == yaml.safe_load(text)
    for empty in ("", "# nothing", "---\n", "~"):
        assert read_yaml(write(tmp_path / "some.yaml", empty)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T10:00:00Z", "2020-01-01T10:00:00Z"),
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-2.5e3", -2500.0),
        (".5e1", 5.0),
        ("'1e3'", "1e3"),
        ("e3", "e3"),
        ("1e3x", "1e3x"),
    ],
)
def test_values_as_ros_reads_them(tmp_path: Path, text: str, value: object) -> None:
    found = read_yaml(write(tmp_path / "some.yaml", f"a: {text}"))["a"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("{", "cannot be read: Expecting"),
        ("[" + "9" * 500_000 + "]", "a number has 500000 digits"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b"\xff", "can't decode"),
        ("", "Expecting value"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "more than"),
    ],
)
def test_broken_json(tmp_path: Path, text: Union[str, bytes], said: str) -> None:
    assert said in refused(read_json, write(tmp_path / "some.json", text))


def test_json(tmp_path: Path) -> None:
    value = [{"a": 1, "b": [1.5, None, "é", True]}, {"a": 2}]
    assert read_json(write(tmp_path / "some.json", json.dumps(value))) == value


@settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="[]{}&*!<>:?-|'\"%@`#, \n\ta1.0~\\", max_size=200).map(str.encode),
        st.text(max_size=100).map(lambda text: text.encode("utf-16", "surrogatepass")),
    )
)
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "some.yaml", data)
    for reader in (*READERS, read_json):
        read_or_refused(reader, path)


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
        ("a: {ros__parameters: }", "below a node's name, got None"),
        ("a: {ros__parameters: [1]}", "below a node's name, got [1]"),
        ("1: {ros__parameters: {}}\n2: {ros__parameters: {}}", "the name of a node must be text, got 1"),
        ("~: {ros__parameters: {}}", "the name of a node must be text, got None"),
        ("a: {ros__parameters: {}, b: 1}", "a/b must have names of nodes"),
        ("/a: {b: {ros__parameters: {}}}\n/a/b: {ros__parameters: {}}", "the node /a/b occurs twice"),
        ("a: {ros__parameters: {raw: {flip: 1}, raw.flip: 2}}", "the parameter raw.flip occurs twice"),
        (f"a: {{ros__parameters: {{? {'x' * 100_000} : {{a: 1}}}}}}", "a name has 100000 characters"),
        (f"? {'x' * 100_000}\n: {{ros__parameters: {{}}}}", "a name has 100000 characters"),
    ],
)
def test_what_are_no_parameters(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(read_nodes, write(tmp_path / "some.yaml", text))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("threads: true", "threads must be a whole number in [0, 256], got True"),
        ("threads: ~", "threads must be a whole number in [0, 256], got None"),
        ("min_intensity: .nan", "min_intensity must be a number in [0.0, 2.0], got nan"),
        ("min_intensity: " + "9" * 900, "min_intensity must be a number"),
        ("resolution: {a: 1}", "no parameter of this package is called resolution.a"),
        ("raw: {flip: [true, 1]}", "raw.flip must be a pair"),
        ("raw: 5", "no parameter of this package is called raw"),
        ("frame_id: 5", "frame_id must be text"),
        ('snapshot: {folder: "\\0"}', "without NUL"),
        ('frame_id: "\\ud800"', r"got '\ud800'"),
        ("display: {gain: {a: 1}}", "called display.gain.a"),
        ("display: {white_balance: [1, b, 2.5]}", "display.white_balance must be"),
        ("use_sim_time: 1", "use_sim_time must be true or false, got 1"),
        ("qos_overrides: {a: ~}", "qos_overrides.a must be a truth value, a number or text, got None"),
        ("qos_overrides: {a: 9223372036854775808}", "qos_overrides.a must be"),
        ("1: 2", "called 1"),
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


def test_parameters_that_every_node_has(tmp_path: Path) -> None:
    text = """
/**:
  ros__parameters:
    use_sim_time: true
    start_type_description_service: false
    qos_overrides: {/image_raw: {subscription: {depth: 5, reliability: reliable}}}
    min_intensity: 1e-2
    frame_id: 2020-01-01
    display: {gain: 2, white_balance: [1, 2, 3]}
"""
    found = changed(from_yaml(write(tmp_path / "some.yaml", text)))
    assert found == {"frame_id": "2020-01-01", "display.gain": 2, "display.white_balance": [1, 2, 3]}


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
WHOLE = st.integers(-(2**63), 2**63 - 1)
KINDS = {str: TEXTS, bool: st.booleans(), int: WHOLE, float: st.floats()}
ALONE = st.one_of(*KINDS.values())
LISTS = st.one_of(*(st.lists(kind, min_size=1, max_size=5) for kind in KINDS.values()))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (math.isnan(one) and math.isnan(other)))


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
def test_no_file_can_hold_it(value: object) -> None:
    with pytest.raises(ValueError, match=r"^frame_id: no parameter can be ") as caught:
        to_yaml({"frame_id": value}, "some")
    assert len(str(caught.value)) < 600
    with pytest.raises(ValueError, match="frame_id must be text"):
        check_parameters({"frame_id": value})


def test_a_title_stays_a_comment() -> None:
    text = to_yaml({}, "front\n/**: {ros__parameters: {threads: 3}}\x1b[2J")
    assert text.splitlines()[0] == r"# front\n/**: {ros__parameters: {threads: 3}}\x1b[2J"
    assert yaml.safe_load(text) == {"/**": {"ros__parameters": {}}}


def test_flat_names() -> None:
    assert flatten({"a": {"b": 1, "c": {}, "d": {"e": 2}}, 3: {None: 4}}) == {"a.b": 1, "a.d.e": 2, "3.None": 4}
