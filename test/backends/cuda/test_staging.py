"""Copies of frames into pinned memory."""

from __future__ import annotations

from typing import Callable, Dict

import numpy as np
import pytest

from polar_pipeline.backends.cpu.library import KernelsError
from polar_pipeline.backends.cuda import memory

#: How the rows of a frame lie in memory.
ROWS: Dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "contiguous": np.ascontiguousarray,
    "padded": lambda rows: np.pad(rows, ((0, 0), (3, 8)))[:, 3:-8],
    "upside down": lambda rows: rows[::-1],
    "mirrored": lambda rows: rows[:, ::-1],
    "transposed": lambda rows: np.ascontiguousarray(rows.T).T,
    "all the same": lambda rows: np.broadcast_to(rows[0], rows.shape),
}


@pytest.mark.parametrize("cores", [1, 64])
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(16, 17), (701, 907), (5, 70_001)])
def test_frames_are_copied_without_padding(
    shape: tuple, dtype: type, name: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are those of NumPy's `tobytes`, also at odd addresses; the memory behind them is not touched."""
    monkeypatch.setattr(memory, "available_cores", lambda: cores)
    rows = ROWS[name](np.random.default_rng(0).integers(0, 256, shape).astype(dtype))
    for skipped in (0, 2, 15 & ~(rows.itemsize - 1)):
        target = np.full(skipped + rows.nbytes + 20, 7, np.uint8)
        memory.stage(target[skipped:], rows)
        assert target[skipped : skipped + rows.nbytes].tobytes() == rows.tobytes()
        assert (target[:skipped] == 7).all()
        assert (target[skipped + rows.nbytes :] == 7).all()


def test_frames_are_copied_without_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise KernelsError("none")

    monkeypatch.setattr(memory, "load_kernels", missing)
    rows = np.arange(600, dtype=np.uint16).reshape(20, 30)[:, 1:-2]
    target = np.zeros(rows.nbytes, np.uint8)
    memory.stage(target, rows)
    assert target.tobytes() == rows.tobytes()
