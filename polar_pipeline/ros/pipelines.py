"""The pipelines that a node keeps, and which of them is used while a new one is compiled. Imports no ROS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Dict, Hashable, Optional, Tuple

from polar_pipeline.pipeline import Pipeline, Raw
from polar_pipeline.ros.parameters import Settings

#: Pipelines kept, one per settings and set of products: viewers that come and go switch between them. The last two in
#: use may still have frames in progress, and others may have been asked for since.
CACHED_PIPELINES = 4


@dataclass(frozen=True)
class ActivePipeline:
    """The pipeline that processes a frame, and the settings by which its outputs are made."""

    pipeline: Pipeline
    settings: Settings


class PipelineCache:
    """The pipelines used last, by settings and products.

    A new one may first have to be compiled. That happens in a thread beside the worker, and meanwhile the one used last
    stays in use, with all of its own settings: a change comes late, but never in parts. A change of how frames are read
    cannot wait (see `_can_replace`); there the worker waits.

    The worker calls `get`, `reset` and `clear`. Before it starts and after it has ended, the main thread may call any
    method. The compiler's thread runs `Pipeline.prepare`, and closes pipelines that were dropped meanwhile.
    """

    def __init__(self) -> None:
        self._pipelines: Dict[Hashable, Pipeline] = {}
        self._last: Optional[ActivePipeline] = None
        self._compiler = ThreadPoolExecutor(1, "polar_pipeline_compiler")
        self._compiling: Dict[Pipeline, Any] = {}  # futures

    def get(self, settings: Settings, products: Tuple[str, ...], raw: Raw) -> ActivePipeline:
        """The pipeline that makes these products by these settings, or the one used last until that is ready for `raw`.

        Raises:
            FrameError: The geometry of the outputs does not fit `raw`.
            RuntimeError: It cannot be made ready.
        """
        wanted, last = ActivePipeline(self._make(settings, products), settings), self._last
        pipeline = wanted.pipeline
        if pipeline.options.geometry is not None:
            pipeline.options.output_size(raw.shape)
        if pipeline in self._compiling or not pipeline.is_ready(raw):
            if last is not None and _can_replace(pipeline, last.pipeline, raw):
                if pipeline not in self._compiling:
                    self._compiling[pipeline] = self._compiler.submit(pipeline.prepare, raw)
                if not self._compiling[pipeline].done():
                    self._use(last.pipeline)
                    return last
            if pipeline in self._compiling:
                self._compiling.pop(pipeline).result()  # raises what went wrong
        if last is None or pipeline is not last.pipeline:
            pipeline.reset()  # its last frame is not the one before this
        self._last = wanted
        return wanted

    def _make(self, settings: Settings, products: Tuple[str, ...]) -> Pipeline:
        """A pipeline of the cache, or a new one that replaces the oldest."""
        key = (settings.options, settings.output_depth, settings.threads, products)
        if key not in self._pipelines:
            self._pipelines[key] = Pipeline(**settings.arguments(products))
        pipeline = self._pipelines[key]
        self._use(pipeline)
        if len(self._pipelines) > CACHED_PIPELINES:
            self._release(self._pipelines.pop(next(iter(self._pipelines))))
        return pipeline

    def _use(self, pipeline: Pipeline) -> None:
        """Make a pipeline of the cache the newest."""
        key = next(key for key, row in self._pipelines.items() if row is pipeline)
        self._pipelines[key] = self._pipelines.pop(key)

    def _release(self, pipeline: Pipeline) -> None:
        """Close a pipeline; one that is being compiled is closed when that ends."""
        compiling = self._compiling.pop(pipeline, None)
        if compiling is None:
            pipeline.close()
        else:
            compiling.cancel()
            compiling.add_done_callback(lambda _: pipeline.close())

    def reset(self) -> None:
        """Forget the frame before, as after a jump in time."""
        if self._last is not None:
            self._last.pipeline.reset()

    def clear(self) -> None:
        """Release all pipelines."""
        for pipeline in self._pipelines.values():
            self._release(pipeline)
        self._pipelines.clear()
        self._last = None

    def close(self) -> None:
        """Release all pipelines and end the compiler's thread."""
        self.clear()
        self._compiler.shutdown()


#: Options by which a frame is read: with former ones, outputs would show something else.
_READING = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")


def _can_replace(wanted: Pipeline, last: Pipeline, raw: Raw) -> bool:
    """Whether `last` can process a frame meant for `wanted`: it reads and compares frames alike, and is ready."""
    alike = (getattr(last.options, name) == getattr(wanted.options, name) for name in (*_READING, "ssim_mode"))
    return all(alike) and last.is_ready(raw)
