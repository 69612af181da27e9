"""Several GPUs on one machine: each worker sees its own alone, and results are the same as those of one."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Dict, List

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
from distributed import Client
from pyarrow import parquet
from recordings import PERIOD, record

from polar_pipeline.batch.cluster import default_jobs, gpu_names, local_client
from polar_pipeline.batch.run import Batch
from polar_pipeline.batch.settings import BatchSettings
from polar_pipeline.batch.storage import list_recordings

STAND_IN = """
import os
from pathlib import Path
SEEN = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
Path(__file__).with_name(f"imported_{os.getpid()}").write_text(SEEN)
"""


def seen() -> str:
    """What CUDA sees in this process: CuPy reads the variable when it is imported first, or later."""
    return str(import_module("cupy").SEEN)


def test_gpus_are_chosen_before_anything_could_use_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CuPy keeps what it sees when the process imports it, whoever does so first."""
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with local_client(2, ["1", "GPU-5"], 0) as client:
        pids: Dict[str, int] = client.run(os.getpid)
        assert sorted(client.run(seen).values()) == ["1", "GPU-5"]
    found = {path.name: path.read_text() for path in (tmp_path / "cupy").glob("imported_*")}
    assert sorted(found) == sorted(f"imported_{pid}" for pid in pids.values())
    assert sorted(found.values()) == ["1", "GPU-5"]


def bus() -> str:
    """The place of this process's GPU in the machine."""
    return str(import_module("cupy").cuda.runtime.deviceGetPCIBusId(0))


def results(client: Client, sources: List[str], folder: Path, split_ns: int) -> Dict[str, bytes]:
    """Products, and the columns of the tables but for times, by name of the recording."""
    settings = BatchSettings({"products": ("dolp", "aolp", "ssim"), "backend": "cuda"}, split_ns=split_ns)
    batch = Batch(settings, list_recordings(sources), folder)
    batch.run(client)
    assert {row.reason for row in batch.outcomes.values()} == {""}
    found = {}
    for name in batch.outcomes:
        found[name] = (folder / "recordings" / name / "products.mcap").read_bytes()
        table = parquet.read_table(folder / "frames" / f"recording={name}" / "part-0.parquet")
        kept = [column for column in table.column_names if not column.endswith("_ms") and column != "late"]
        found[f"{name} table"] = repr(table.select(kept).to_pylist()).encode()
    return found


@pytest.mark.gpu
def test_two_gpus_make_what_one_makes(tmp_path: Path) -> None:
    gpus = gpu_names("cuda")
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    assert default_jobs(gpus) == len(gpus)
    sources = [str(record(tmp_path / "in" / f"r{seed}.mcap", 40, side=512, seed=seed)) for seed in range(4)]
    with local_client(1, gpus[:1], 0) as client:
        expected = results(client, sources, tmp_path / "one", 0)
    with local_client(2, gpus[:2], 0) as client:
        assert len(set(client.run(bus).values())) == 2
        for split_ns in (0, 10 * PERIOD):
            assert results(client, sources, tmp_path / f"two{split_ns}", split_ns) == expected
