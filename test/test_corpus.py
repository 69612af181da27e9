"""The fuzzer's corpus: what each input comes to, as it is written down beside it (`python test/fuzz --record`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from fuzz import corpus
from fuzz.engine import Target
from fuzz.targets import TARGETS, load

#: Bytes of the largest file, and of all of them.
FILE_BYTES, ALL_BYTES = 100_000, 1_000_000
INPUTS = [(name, path) for name in TARGETS for path in corpus.files(name)]


@pytest.fixture(scope="module", name="targets")
def fixture_targets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each target, made once."""

    @lru_cache(maxsize=None)
    def target(name: str) -> Target:
        return load(name)(tmp_path_factory.mktemp(name))

    return target


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "path"), INPUTS, ids=[f"{name}/{path.name}" for name, path in INPUTS])
def test_an_input_comes_to_what_is_written_down(name: str, path: Path, targets: Any) -> None:
    assert corpus.outcome(targets(name), path) == corpus.expected(name)[path.name]


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_whole_and_small(name: str) -> None:
    files = corpus.files(name)
    assert {path.name for path in files} == set(corpus.expected(name))
    assert {outcome.split(":")[0] for outcome in corpus.expected(name).values()} >= {"accepted"}
    assert all(path.stat().st_size < FILE_BYTES for path in files)
    assert sum(path.stat().st_size for _, path in INPUTS) < ALL_BYTES
