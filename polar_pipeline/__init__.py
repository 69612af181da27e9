"""Real-time polarization imaging: raw polarizer mosaics in, Stokes, DoLP, AoLP and image quality out."""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, List, Optional

if TYPE_CHECKING:
    from polar_pipeline import stokes
    from polar_pipeline.backends.cuda.device_arrays import DeviceResult
    from polar_pipeline.exposures import merge_exposures
    from polar_pipeline.options.products import PRODUCTS
    from polar_pipeline.pipeline import Pipeline, Result
    from polar_pipeline.recordings.limits import SourceError
    from polar_pipeline.recordings.reader import StoredFrame, read_frames
    from polar_pipeline.sensor.frames import FrameError, RawFrame
    from polar_pipeline.sensor.mosaic import SENSORS, Sensor
    from polar_pipeline.tools.calibrate.make import make_calibration

__version__ = "1.0.0"

__all__ = [
    "PRODUCTS",
    "SENSORS",
    "DeviceResult",
    "FrameError",
    "Pipeline",
    "RawFrame",
    "Result",
    "Sensor",
    "SourceError",
    "StoredFrame",
    "make_calibration",
    "merge_exposures",
    "read_frames",
    "stokes",
]

#: Public name -> the module of this package that defines it, or that it is.
_MODULE_OF = {
    "PRODUCTS": "options.products",
    "SENSORS": "sensor.mosaic",
    "DeviceResult": "backends.cuda.device_arrays",
    "FrameError": "sensor.frames",
    "Pipeline": "pipeline",
    "RawFrame": "sensor.frames",
    "Result": "pipeline",
    "Sensor": "sensor.mosaic",
    "SourceError": "recordings.limits",
    "StoredFrame": "recordings.reader",
    "make_calibration": "tools.calibrate.make",
    "merge_exposures": "exposures",
    "read_frames": "recordings.reader",
    "stokes": "stokes",
}

#: Former names of modules that users import -> where they are below this package.
_MOVED = {
    "batch": "tools.batch",
    "products": "options.products",
    "reference": "backends.reference",
    "world": "polarimetry.world",
}


class _FormerNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules by their former names; each stays one module."""

    def find_spec(self, fullname: str, *_: object) -> Optional[ModuleSpec]:
        """Return how to import a module by its former name, or None for any other name."""
        top, *rest = fullname.split(".")
        return ModuleSpec(fullname, self) if top == __name__ and rest and rest[0] in _MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its name of today."""
        top, dot, rest = spec.name.partition(".")[2].partition(".")
        module = importlib.import_module(f"{__name__}.{_MOVED[top]}{dot}{rest}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back what the import has replaced: it was run before."""
        former = module.__spec__
        module.__spec__ = None if former is None else former.loader_state


sys.meta_path.insert(0, _FormerNames())


def __getattr__(name: str) -> Any:
    """Load the public names on first use: the node must handle signals before NumPy and OpenCV are imported."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    return module if name == _MODULE_OF[name] else getattr(module, name)


def __dir__() -> List[str]:
    """List the public names, which are not loaded yet, and not what this module imports."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
