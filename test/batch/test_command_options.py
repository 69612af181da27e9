"""Options of `polar-pipeline batch` against the same of `replay`; what needs no workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
from recordings import record

from polar_pipeline import cli
from polar_pipeline.batch import cluster
from polar_pipeline.replay.sink import open_sink

PARAMS = """
/**:
  ros__parameters:
    co_sited: false
    ssim_mode: temporal
"""


@pytest.fixture(name="source")
def fixture_source(tmp_path: Path) -> Path:
    return record(tmp_path / "in" / "drive.mcap", 6)


def batch(source: Path, out: Path, *words: str) -> bytes:
    """The products that `batch` makes of a recording."""
    assert cli.main(["batch", str(source), "-o", str(out), "--jobs", "1", "--backend", "cpu", *words]) == 0
    return (out / "recordings" / "drive" / "products.mcap").read_bytes()


def replayed(source: Path, out: Path, *words: str) -> bytes:
    """The products that `replay` makes of it."""
    assert cli.main(["replay", str(source), "-o", str(out), "--report", "-", "--backend", "cpu", *words]) == 0
    return out.read_bytes()


def test_params(source: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    words = ["--products", "dolp,ssim", "--params", str(path)]
    found = batch(source, tmp_path / "out", *words)
    assert found == replayed(source, tmp_path / "same.mcap", *words)
    assert found != replayed(source, tmp_path / "other.mcap", *words[:2])
    path.write_text("/**: {ros__parameters: {co_sitted: false}}")
    assert cli.main(["batch", str(source), "-o", str(tmp_path / "none"), *words]) == 2
    assert "co_sitted" in capsys.readouterr().err


def test_reference(source: Path, tmp_path: Path) -> None:
    """Every recording has the reference of its name, here in the results of an earlier batch."""
    batch(source, tmp_path / "earlier", "--products", "intensity", "--own-site")
    words = ["--products", "ssim,ssim_map", "--ssim-mode", "reference", "--reference"]
    found = batch(source, tmp_path / "out", *words, str(tmp_path / "earlier"))
    reference = tmp_path / "earlier" / "recordings" / "drive" / "products.mcap"
    assert found == replayed(source, tmp_path / "same.mcap", *words, str(reference))


def test_all_complete(source: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is started; the page is written again."""
    batch(source, tmp_path / "out")
    page = tmp_path / "out" / "index.html"
    page.unlink()
    monkeypatch.setattr(cluster, "local_client", None)
    batch(source, tmp_path / "out")
    assert "1 ok, 0 differ, 0 failed; 1 were complete already" in capsys.readouterr().out
    assert page.exists()


def in_namespace(path: Path, copy: Path) -> None:
    """The messages of a recording on topics in a namespace."""
    with path.open("rb") as stream, open_sink(copy, {}) as sink:
        for schema, channel, row in make_reader(stream).iter_messages(log_time_order=False):
            sink.write(f"/front{channel.topic}", schema.name, row.log_time, row.data)


def test_products_of_a_golden_recording(source: Path, tmp_path: Path) -> None:
    """Those that are compared are those that it holds, also where it was recorded in a namespace."""
    replayed(source, tmp_path / "replayed.mcap", "--products", "dolp")
    golden = tmp_path / "golden"
    golden.mkdir()
    in_namespace(tmp_path / "replayed.mcap", golden / "drive.mcap")
    assert batch(source, tmp_path / "out", "--compare", str(golden)) == (tmp_path / "replayed.mcap").read_bytes()
