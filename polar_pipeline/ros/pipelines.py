"""The pipelines that a node keeps, and what serves while a new one is compiled. Imports no ROS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Hashable, NamedTuple, Optional, Tuple

from polar_pipeline.pipeline import Pipeline, Raw
from polar_pipeline.ros.parameters import Settings

#: Pipelines kept, one per settings and set of products: viewers that come and go switch between them. Frames may
#: be under way in what served the last two, and others may have been asked for then.
CACHED_PIPELINES = 4


class Served(NamedTuple):
    """What processes a frame, and the settings that its outputs go by."""

    pipeline: Pipeline
    settings: Settings


class PipelineCache:
    """The pipelines used last, by settings and products; used by the worker alone.

    A new one may first have to be compiled. That happens in a thread beside the worker, and meanwhile the one used last
    keeps serving, with its own settings in everything: a change comes late, but never in parts. What cannot be put off
    is how frames are read (see `_can_stand_in`); there the worker waits.
    """

    def __init__(self) -> None:
        self._pipelines: Dict[Hashable, Pipeline] = {}
        self._last: Optional[Served] = None
        self._compiler = ThreadPoolExecutor(1, "polar_pipeline_compiler")
        self._compiling: Dict[Pipeline, Any] = {}  # futures

    def get(self, settings: Settings, products: Tuple[str, ...], raw: Raw) -> Served:
        """What makes these products by these settings, or what was used last until that is ready for `raw`.

        Raises:
            RuntimeError: It cannot be made ready.
        """
        wanted, last = Served(self._make(settings, products), settings), self._last
        pipeline = wanted.pipeline
        if pipeline in self._compiling or not pipeline.is_ready(raw):
            if last is not None and _can_stand_in(last.pipeline, pipeline, raw):
                if pipeline not in self._compiling:
                    self._compiling[pipeline] = self._compiler.submit(pipeline.prepare, raw)
                if not self._compiling[pipeline].done():
                    self._use(last.pipeline)
                    return last
            if pipeline in self._compiling:
                self._compiling.pop(pipeline).result()  # raises what went wrong
        if last is None or pipeline is not last.pipeline:
            pipeline.reset()  # what it saw last is not the frame before this one
        self._last = wanted
        return wanted

    def _make(self, settings: Settings, products: Tuple[str, ...]) -> Pipeline:
        """A pipeline of the cache, or a new one in the place of the oldest."""
        key = (settings.options, settings.output_depth, settings.threads, products)
        if key not in self._pipelines:
            self._pipelines[key] = Pipeline(**settings.arguments(products))
        pipeline = self._pipelines[key]
        self._use(pipeline)
        if len(self._pipelines) > CACHED_PIPELINES:
            self._release(self._pipelines.pop(next(iter(self._pipelines))))
        return pipeline

    def _use(self, pipeline: Pipeline) -> None:
        """Put a pipeline of the cache last: the others are older."""
        key = next(key for key, row in self._pipelines.items() if row is pipeline)
        self._pipelines[key] = self._pipelines.pop(key)

    def _release(self, pipeline: Pipeline) -> None:
        """Close a pipeline, if it is being compiled as soon as that is done."""
        compiling = self._compiling.pop(pipeline, None)
        if compiling is None:
            pipeline.close()
        else:
            compiling.cancel()
            compiling.add_done_callback(lambda _: pipeline.close())

    def reset(self) -> None:
        """Forget the frame before."""
        if self._last is not None:
            self._last.pipeline.reset()

    def clear(self) -> None:
        """Release all pipelines."""
        for pipeline in self._pipelines.values():
            self._release(pipeline)
        self._pipelines.clear()
        self._last = None

    def close(self) -> None:
        """Release all pipelines for good."""
        self.clear()
        self._compiler.shutdown()


#: Options that say how a frame is read: outputs made by former ones would be pictures of something else.
_READING = ("sensor", "bit_depth", "alignment", "roi_offset", "flip")


def _can_stand_in(one: Pipeline, other: Pipeline, raw: Raw) -> bool:
    """Whether a pipeline can process a frame that is meant for another one: it reads and compares frames likewise."""
    alike = (getattr(one.options, name) == getattr(other.options, name) for name in (*_READING, "ssim_mode"))
    return all(alike) and one.is_ready(raw)
