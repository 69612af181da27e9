"""Target: YAML and JSON files that people write."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any, Callable, Dict, List

from polar_pipeline.cuda.model import tuned as choice
from polar_pipeline.cuda.model.schedule import Schedule, ScheduleError

from fuzz.engine import Case, Target, WrongError, refused
from fuzz.mutate import Writer, mutated, words
from polar_pipeline._util.documents import read_json
from polar_pipeline._util.yamlfile import read_yaml
from polar_pipeline.ros.names import is_name
from polar_pipeline.ros.parameters import PARAMETERS, make_settings
from polar_pipeline.ros.preset import from_yaml, read_nodes, to_yaml
from polar_pipeline.ros.rig import MAX_CAMERAS, read_rig

_LONGEST = 1000
_SCALARS = words(
    r"""
    1  -1  0  0.5  1e-3  1e3  1E+400  .inf  -.inf  .nan  true  false  yes  off  null  ~  0x1F  0o17  017  1_000
    190:20:30  2001-01-01  2001-12-14t21:59:43.10-05:00  'text'  "\x1b[2J"  "\ud800"  ''  "\0"  half  cpu  IMX250MZR
    '90 45 / 135 0'  !!str 5  !!int ''  !!int '1_'  !!float 'x'  !!bool maybe  !!null x  !!binary '='  !!binary aGk=
    !!set {a, b}  !!timestamp noon  !!omap [a: 1]  !!pairs [a: 1, a: 2]  !!python/object/apply:os.getcwd []  !mine 5
    <<  999999999999999999999999999999  @  `  %  *a  *b  &a 5  - 1  ? 1
    """
)
_SCALARS += ["|\n  block", ">\n  folded", "9" * 5000, "0x" + "f" * 3000, "1" + ":1" * 2000, "x" * 5000]
_KEYS = words(
    r"""
    a  b  1  1.5  true  null  '/**'  /polar_pipeline  ros__parameters  sensor  raw  raw.flip  <<  =  ""  processes
    cameras  namespace  name  "\x1b"  2001-01-01  !!binary aGk=  *a  &a k
    """
)
_KEYS += ["x" * 600, "? [1]\n", "? {a: 1}\n"]

_SCHEDULE_FIELDS = tuple(field.name for field in dataclasses.fields(Schedule))


def _node(rng: random.Random, depth: int = 0) -> str:
    """YAML in flow style, on one line but for its scalars."""
    near = rng.random()
    anchor = rng.choice(("&a ", "&b ", "")) if rng.random() < 0.1 else ""
    if near < 0.5 or depth > 4:
        return anchor + rng.choice(_SCALARS)
    if near < 0.75:
        return f"{anchor}[{', '.join(_node(rng, depth + 1) for _ in range(rng.randint(0, 4)))}]"
    rows = [f"{rng.choice(_KEYS)}: {_node(rng, depth + 1)}" for _ in range(rng.randint(0, 4))]
    return f"{anchor}{{{', '.join(rows)}}}"


def _deep(rng: random.Random) -> str:
    """Texts that are deep, long, or grow when they are read."""
    count = rng.choice((5, 39, 40, 41, 100, 3000))
    return rng.choice(
        (
            "[" * count,
            "[" * count + "]" * count,
            "{a: " * count + "1" + "}" * count,
            "- " * count + "1",
            "&a [*a]",
            "a: &a {<<: *a}",
            "a: &a [x]\n" + "".join(f"a{k}: &a{k} [{', '.join(['*a' + str(k - 1 or '')] * 9)}]\n" for k in range(1, 9)),
            "a: &a0 {x: 1}\n"
            + "".join(f"k{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in range(1, 1 + min(count, 12))),
            "\n".join(f"k{k}: {k}" for k in range(count)),
            "[1" + ",1" * 7 * count + "]",
            "a: 1\n---\nb: 2",
            "%YAML 1.2\n---\na: 1",
            "\ufeffa: 1",
            "a:\n\t- 1",
            "a: " + "9" * (count + 900),
            "? " * count + "1",
            "!!seq " * min(count, 50) + "[]",
            '"' + "\\u00e9" * count + '"',
        )
    )


def _parameters(rng: random.Random, indent: str) -> str:
    rows = []
    for _ in range(rng.randint(1, 4)):
        name, row = rng.choice(list(PARAMETERS.items()))
        value = json.dumps(row.default) if rng.random() < 0.85 else _node(rng, 3)
        rows.append(f"{indent}{name if rng.random() < 0.95 else rng.choice(_KEYS)}: {value}")
    return "\n".join(rows)


def _params_text(rng: random.Random) -> str:
    nodes = ['"/**"', rng.choice(("/polar_pipeline", "front", rng.choice(_KEYS)))][rng.choice((0, 0, 1)) :]
    rows = [f"{node}:\n  ros__parameters:\n{_parameters(rng, '    ')}" for node in nodes[: rng.choice((1, 2))]]
    return "\n".join(rows) + "\n"


def _rig_text(rng: random.Random) -> str:
    def odd(good: str, *others: str) -> str:
        """A value that is right, most of the time."""
        near = rng.random()
        return good if near < 0.85 else _node(rng, 4) if near < 0.9 else rng.choice(others)

    rows = [f"processes: {odd('each', 'one')}", "cameras:"][rng.choice((0, 1)) :]
    for k in range(rng.choice((1, 1, 2, 2, 3, 64, 65)) if rng.random() < 0.3 else 2):
        fields = [f"namespace: {odd(f'cam{k}', f'/a/b{k}', 'front')}"]
        some = [
            f"name: {odd('polar', 'a b', '__x')}",
            f"image_topic: {odd('image', '~/image', '/a//b')}",
            f"params_file: {odd('good.yaml', 'bad.yaml', 'none.yaml', '~nobody/x', '.')}",
            f"parameters:\n{_parameters(rng, '      ')}",
        ]
        fields += rng.sample(some, rng.choice((0, 1, 1, 2)))
        if rng.random() < 0.05:
            fields.append(f"{rng.choice(_KEYS)}: {_node(rng, 3)}")
        rows.append("  - " + "\n    ".join(fields))
    return "\n".join(rows) + "\n"


def _json_value(rng: random.Random, depth: int = 0) -> Any:
    near = rng.random()
    if near < 0.5 or depth > 4:
        numbers = (0, 1, -1, 1.5, 1e300, 10**30, 10**400, 1e-9, math.nan, math.inf)
        return rng.choice((rng.choice(numbers), None, True, "text", "é", "\x00", "\ud800", "x" * 300))
    if near < 0.75:
        return [_json_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(("a", "b", "c", "é", "")): _json_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def _json_text(rng: random.Random) -> str:
    if rng.random() < 0.1:
        count = rng.choice((100, 990, 3000, 100_000))
        return rng.choice(
            ("[" * count, '{"a":' * min(count, 9000), "9" * count, '{"a": 1, "a": 2}', '"' + "\\" * count)
        )
    return json.dumps(_json_value(rng), ensure_ascii=rng.random() < 0.9)


def _tuned_text(rng: random.Random) -> str:
    rows: List[Dict[str, Any]] = []
    for _ in range(rng.randint(0, 3)):
        values = {name: rng.choice((0, 1, 32, 1 << 20)) for name in _SCHEDULE_FIELDS[2:]}
        schedule = {**dict(zip(_SCHEDULE_FIELDS, ("tile", "word"))), **values}
        row = {"work": "mono half", "size": [2448, 2048], "schedule": schedule, "us": 1.5}
        if rng.random() < 0.3:
            place = rng.choice((row, schedule))
            place[rng.choice((*place, "foreign"))] = _json_value(rng)
        if rng.random() < 0.1:
            row.pop(rng.choice(list(row)))
        rows.append(row)
    return json.dumps(rows if rng.random() < 0.95 else _json_value(rng))


class Files(Target):
    """Texts for the readers of rigs, parameter files, tuned schedules, YAML and JSON."""

    name = "files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "good.yaml").write_text(to_yaml({"sensor": "IMX250MZR"}, "good"), encoding="utf-8")
        (folder / "bad.yaml").write_text("[", encoding="utf-8")
        self._readers: Dict[str, List[Callable[[Path], Any]]] = {
            "yaml": [read_yaml],
            "params": [read_nodes, _from_yaml],
            "rig": [_read_rig],
            "json": [read_json],
            "tuned": [_read_tuned],
        }

    def make(self, rng: random.Random) -> Case:
        kind = rng.choice(("yaml", "params", "params", "rig", "rig", "json", "tuned", "flow"))
        if kind == "flow":  # JSON, which is YAML too
            return Case("yaml", mutated(rng, Writer("<", _json_text(rng).encode("utf-8", "surrogatepass")), 0.9))
        growing = {"params": _params_text, "rig": _rig_text, "json": _json_text, "tuned": _tuned_text}
        grow: Callable[[random.Random], str] = growing.get(kind, _node)
        text = _deep(rng) if kind not in ("json", "tuned") and rng.random() < 0.1 else grow(rng)
        return Case(kind, mutated(rng, Writer("<", text.encode("utf-8", "surrogatepass")), 0.6))

    def run(self, case: Case) -> str:
        path = self.folder / f"in.{case.kind}"
        path.write_bytes(case.data)
        outcome = "accepted"
        found: Any = None
        for read in self._readers[case.kind]:
            try:
                found = read(path)
            except (ValueError, ScheduleError) as err:  # noqa: PERF203
                if type(err) not in (ValueError, ScheduleError):
                    raise
                _check_text(err, path)
                outcome = refused(err)
        if case.kind in ("json", "yaml"):
            _compare(case, found, outcome == "accepted")
        return outcome


def _check_text(err: Exception, path: Path) -> None:
    text = str(err)
    if path.name not in text or not text.isprintable() or len(text) > _LONGEST:
        raise WrongError(f"{len(text)} characters, not printable, or without the file: {text[:300]!r}") from err


def _from_yaml(path: Path) -> Dict[str, Any]:
    values = from_yaml(path)
    try:
        make_settings(values)
    except ValueError:
        return values  # values that do not go together
    again = path.with_name("again.yaml")
    again.write_text(to_yaml(values, "again"), encoding="utf-8")
    if repr(from_yaml(again)) != repr(_as_lists(values)):
        raise WrongError("parameters do not come back from the file that they make")
    return values


def _read_tuned(path: Path) -> Any:
    choice._read.cache_clear()
    found = choice._read(path)
    for (work, width, height), row in found.items():
        sizes = (width, height, *dataclasses.astuple(row.schedule)[2:])
        if not isinstance(work, str) or not all(type(size) is int and size >= 0 for size in sizes) or not row.us >= 0:
            raise WrongError(f"a schedule of {work[:50]!r}, {sizes}, {row.us}")
    return found


def _as_lists(values: Dict[str, Any]) -> Dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _read_rig(path: Path) -> Any:
    rig = read_rig(path, "robot")
    names = [camera.full_name for camera in rig.cameras]
    if not 1 <= len(names) <= MAX_CAMERAS or len(set(names)) < len(names) or not all(map(is_name, names)):
        raise WrongError(f"cameras are called {names[:5]}")
    if rig.processes not in ("one", "each") or not all(name.startswith("/robot/") for name in names):
        raise WrongError(f"processes {rig.processes}, cameras {names[:5]}")
    for camera in rig.cameras:
        if camera.params_file is not None:
            read_nodes(camera.params_file)
    return rig


def _compare(case: Case, found: Any, is_taken: bool) -> None:
    """JSON is what Python's own reader makes of it, and so is YAML that is JSON."""

    def unique(pairs: Any) -> Any:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice")
        return dict(pairs)

    try:
        want = json.loads(case.data, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        if is_taken and case.kind == "json":
            raise WrongError("what is no JSON is taken for it") from None
        return
    if not is_taken:
        if case.kind == "json" and len(case.data) < 900:
            raise WrongError("JSON is refused")
        return
    if repr(found) != repr(want) and not _is_yaml_of_its_own(case):
        raise WrongError(f"read as {repr(found)[:100]}, not as {repr(want)[:100]}")


def _is_yaml_of_its_own(case: Case) -> bool:
    """Whether a text means something else in YAML 1.1: comments, NaN as a word, merges, escapes, octal numbers."""
    if case.kind == "json":
        return False
    marks = (
        b"#",
        b"NaN",
        b"Infinity",
        b"<<",
        b"\\",
        b": 0",
        b"[0",
        b"=",
        b"&",
        b"*",
        b"!",
        b"\x7f",
        b"\t",
        b"\r",
        b"\n",
    )
    return any(mark in case.data for mark in marks)
