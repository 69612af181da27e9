"""The fuzzer's corpus: what each input comes to, as it is written down beside it (`python test/fuzz --record`)."""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest
from fuzz import run

EXPECTED: Dict[str, Dict[str, str]] = {
    name: json.loads((run.CORPUS / name / "expected.json").read_text(encoding="utf-8")) for name in run.TARGETS
}


@pytest.fixture(scope="module", name="targets")
def fixture_targets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each target, made once."""
    return {name: run.load(name)(tmp_path_factory.mktemp(name)) for name in run.TARGETS}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in EXPECTED.items() for file in files])
def test_an_input_comes_to_what_is_written_down(name: str, file: str, targets: Any) -> None:
    assert run.outcome(targets[name], run.CORPUS / name / file) == EXPECTED[name][file]


def test_the_corpus_is_complete_and_small() -> None:
    paths = [path for name in run.TARGETS for path in run.corpus_files(name)]
    assert {path.name for path in paths} == {file for files in EXPECTED.values() for file in files}
    assert len(paths) <= 60
    assert sum(path.stat().st_size for path in paths) < 100_000
