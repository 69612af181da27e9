"""Copies of frames into pinned memory by several threads."""

from __future__ import annotations

import numpy as np
import pytest

from polar_pipeline.cuda import staging


@pytest.mark.parametrize("cores", [1, 3, 64])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(16, 16), (700, 900), (2048, 2448)])
def test_parts_are_complete_in_order(shape: tuple, dtype: type, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part equals the frame's when it is announced, without the padding of rows; the rest is not touched."""
    monkeypatch.setattr(staging, "available_cores", lambda: cores)
    rows = np.random.default_rng(0).integers(0, 256, (shape[0], shape[1] + 5)).astype(dtype)[:, 2:-3]
    wanted = np.frombuffer(rows.tobytes(), np.uint8)
    target, complete = np.full(rows.nbytes + 3, 7, np.uint8), 0
    for first, end in staging.stage(target, rows):
        assert first == complete < end
        np.testing.assert_array_equal(target[first:end], wanted[first:end])
        complete = end
    assert complete == rows.nbytes
    assert (target[complete:] == 7).all()
