"""Reads the files that parameters name before these are set, in a thread, while the executor goes on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, Tuple

from polar_pipeline.calibration.file import load_calibration_once

#: The parameter that names a file of megabytes.
PARAMETER = "calibration"


class ParameterFiles:
    """Delays requests to set parameters until their files were read; requests are answered in their order.

    The executor's thread calls every method; files are read in a thread of this object.
    """

    def __init__(self) -> None:
        self._unreadable: Dict[str, str] = {}  # path -> reason, of the request in progress
        self._thread = ThreadPoolExecutor(1, "polar_pipeline_files")
        self._requests: Deque[Tuple[Dict[str, str], Callable[[], None], List[Any]]] = deque()  # their files were read
        self._last: Any = None  # a future

    def first(self, node: Any, callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A service's callback that gives a future if files have to be read before `callback` can answer.

        Args:
            node: Its executor calls `callback`.
            callback: Sets the parameters of a request; must not raise anything.
        """

        def answer(request: Any, response: Any) -> Any:
            paths = [row.value.string_value for row in request.parameters if row.name == PARAMETER]
            if not any(paths) and (self._last is None or self._last.done()):
                return callback(request, response)
            answered = self._last = Future()
            self._thread.submit(self._read, paths, lambda: answered.set_result(callback(request, response)), node)
            return answered

        return answer

    def _read(self, paths: List[str], set_parameters: Callable[[], None], node: Any) -> None:
        kept, unreadable = [], {}
        for path in filter(None, paths):
            try:
                kept.append(load_calibration_once(Path(path)))
            except Exception as err:  # noqa: BLE001, PERF203 - the request must be answered
                unreadable[path] = f"{PARAMETER}: {err}"
        self._requests.append((unreadable, set_parameters, kept))
        node.executor.create_task(self._finish_oldest)  # tasks may run in any order

    def _finish_oldest(self) -> None:
        """Set the parameters of a request; its calibrations are held until then, and are not read again."""
        self._unreadable, set_parameters, _ = self._requests.popleft()
        try:
            set_parameters()
        finally:
            self._unreadable = {}

    def check(self, values: Mapping[str, object]) -> None:
        """Refuse values of parameters that name an unreadable file.

        Raises:
            ValueError: With the reason.
        """
        reason = self._unreadable.get(str(values.get(PARAMETER)))
        if reason is not None:
            raise ValueError(reason)

    def close(self) -> None:
        """Finish the file that is being read, and end the thread; safe to call twice."""
        self._thread.shutdown()
