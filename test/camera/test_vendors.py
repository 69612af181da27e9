"""Cameras of seven makers on loopback: they start with the defaults, stream, and stop."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any, List

import numpy as np
import pytest
from fake_camera import FakeCamera, sent_bytes
from support import wait_for
from vendors import VENDORS

from polar_pipeline.camera import source as source_module
from polar_pipeline.camera.settings import KEEP_GAIN, CameraSettings
from polar_pipeline.camera.source import CameraSource
from polar_pipeline.recordings import messages

PICTURE = np.random.default_rng(42).integers(0, 4096, (64, 96)).astype(np.uint16)


class Client:
    """Takes frames, and keeps the newest message and what is said."""

    def __init__(self) -> None:
        self.lines: List[str] = []
        self.facts: Any = None
        self.cdr: Any = None
        self.memory = lambda: None

    def take(self, cdr: Any, facts: Any, _: int) -> None:
        self.cdr, self.facts = cdr, facts

    def check(self, _: Any) -> None:
        pass

    def dropped(self, *_: Any) -> None:
        pass

    refuse = dropped

    def info(self, line: str) -> None:
        self.lines.append(line)

    warning = info

    def newest(self, pixel_format: str) -> bytes:
        """Return the bytes of a frame that is received from now on in a pixel format."""
        self.cdr = None
        wait_for(lambda: self.cdr is not None and self.facts.pixel_format == pixel_format, pixel_format)
        return bytes(messages.decode_image(self.cdr).data)


@pytest.mark.camera
@pytest.mark.parametrize("name", VENDORS)
def test_cameras_of_all_makers_stream_with_the_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "list_cameras", list)  # a search of the network takes a second
    vendor, client = VENDORS[name], Client()
    options: Any = {"changes": vendor.changes, "without": vendor.without, "model": vendor.model}
    settings = CameraSettings(source="aravis:127.0.0.1")
    with FakeCamera(PICTURE, **options) as fake, closing(CameraSource(settings, "camera", client)) as made:
        gain = "Gain" if vendor.gain[0] is not None else "GainRaw"
        before = fake.get(gain)
        made.start()
        assert made.connection is not None, made.problem
        first = made.connection.facts.pixel_format
        assert client.newest(first) == sent_bytes(PICTURE, first)
        facts, limits = client.facts, made.connection.ranges
        assert (facts.sensor, facts.gain_db) == (vendor.sensor, pytest.approx(vendor.gain[0], abs=1e-3))
        assert (facts.gamma, facts.lut, facts.black_level is None) == (pytest.approx(vendor.gamma), False, False)
        assert fake.get(gain) == before

        state = made.apply(replace(made.connection.settings, pixel_format="12p"), lambda _: None)
        assert client.newest(vendor.deep) == sent_bytes(PICTURE, vendor.deep)
        falls_back = not vendor.deep.endswith("12p")
        assert (f"camera.pixel_format 12p becomes {vendor.deep}" in client.lines) == falls_back
        assert state.pixel_format == (vendor.deep if falls_back else "12p")

        if vendor.gain[0] is None:
            assert (state.gain_db, "gain_db" in limits) == (KEEP_GAIN, False)
        else:
            state = made.apply(replace(state, gain_db=6.0206), lambda _: None)
            assert fake.get("Gain") == pytest.approx(vendor.gain[1], rel=1e-3)
            assert state.gain_db == pytest.approx(6.0206, abs=1e-3)
            assert limits["gain_db"][0] == 0.0
        state = made.apply(replace(state, trigger="line"), lambda _: None)
        assert (state.trigger, fake.get("TriggerSource"), fake.get("TriggerMode")) == (vendor.line, vendor.line, "On")
