"""A run of a batch: which units are to be done, in which order, and what came of every recording."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, overload

from distributed import Client

from polar_pipeline._util.files import replacing
from polar_pipeline.batch import messaging
from polar_pipeline.batch.cluster import check_workers
from polar_pipeline.batch.loop import Loop, LostSchedulerError, Unit
from polar_pipeline.batch.overview import RecordingResult, write_overview
from polar_pipeline.batch.progress import Progress
from polar_pipeline.batch.results import SETTINGS, Outcome, clean, completed, known_names, make_folders
from polar_pipeline.batch.settings import BatchSettings, unit_of
from polar_pipeline.batch.sources import scheme_of
from polar_pipeline.batch.storage import Recording
from polar_pipeline.batch.units import Division, Task, merge_unit, plan_unit, recording_unit, segment_unit
from polar_pipeline.replay.limits import SourceError

#: Seconds that workers get to stop after a run was cancelled.
STOPPING_S = 15.0
#: Function of a unit -> its priority: what is begun is completed before further recordings are.
_PRIORITIES = {plan_unit: 0, recording_unit: 0, segment_unit: 1, merge_unit: 2}


@dataclass
class _State:
    """A recording that is being processed.

    Attributes:
        task: The recording.
        plan: Its segments; None while it is not divided.
        units: What identifies each segment.
        left: Segments that are not done.
        reason: Why a segment failed; "" if none did.
    """

    task: Task
    plan: Optional[Division] = None
    units: List[str] = field(default_factory=list)
    left: int = 0
    reason: str = ""


class Batch:
    """Processes recordings on a cluster into a folder: `run`, if any are `left`, then `write_overview`.

    Attributes:
        outcomes: Name of a recording -> what came of it.
        skipped: Recordings that were complete already.
        left: Recordings that are to be processed, and what identifies the result of each (`unit_of`).

    Args:
        settings: How to process them.
        recordings: The recordings.
        folder: Where results go; every worker sees it.

    Raises:
        ValueError: An option is not allowed.
        OSError: The folder cannot be made.
    """

    def __init__(self, settings: BatchSettings, recordings: Sequence[Recording], folder: Path) -> None:
        self.outcomes: Dict[str, Outcome] = {}
        self.left: List[Tuple[Recording, str]] = []
        self._settings = settings
        self._described = settings.described()
        self._recordings = recordings
        self._folder = folder.resolve()
        self._run = secrets.token_hex(8)
        make_folders(self._folder)
        self._write_settings()
        self._look_up()
        self.skipped = sum(row.status != "failed" for row in self.outcomes.values())
        self._sizes = {recording.name: recording.size for recording, _ in self.left}
        self._progress = Progress(len(recordings), sum(self._sizes.values()), len(self.outcomes))

    def _look_up(self) -> None:
        """Take the results that are complete, and find what is left."""
        for recording in self._recordings:
            try:
                unit = unit_of(self._settings, self._described, recording)
            except (SourceError, OSError) as err:
                self.outcomes[recording.name] = Outcome(recording.name, "", "failed", str(err))
                continue
            known = completed(self._folder, recording.name, unit)
            if known is None:
                self.left.append((recording, unit))
            else:
                self.outcomes[recording.name] = known

    def run(self, client: Client, threads: int = 1) -> None:
        """Process what is left.

        Args:
            client: Of the cluster.
            threads: CPU threads of each pipeline, where the settings name no number.

        Raises:
            WorkerError: A worker differs from this process.
            LostSchedulerError: The scheduler no longer answers.
            OSError: The folder cannot be written to.
        """
        arguments = self._settings.arguments
        settings = replace(self._settings, arguments={**arguments, "threads": arguments.get("threads") or threads})
        check_workers(client, settings, self._described, self._folder)
        topic = messaging.topic_of(self._run)
        self._progress.start()
        loop = Loop(client, self._progress.show)
        try:
            client.subscribe_topic(topic, self._count)
            loop.run(self._units(settings), self._finished)
        except LostSchedulerError:
            raise
        except BaseException:
            self._stop(client, loop)
            raise
        finally:
            self._progress.close()
            with suppress(Exception):  # of a scheduler that is gone
                client.unsubscribe_topic(topic)
            clean(self._folder)

    # --------------------------------------------------------------------------------------------------------- units

    def _units(self, settings: BatchSettings) -> Iterator[Unit]:
        """The first unit of every recording that is left, in their order."""
        for recording, unit in self.left:
            task = Task(settings, self._described, recording, self._folder, unit, self._run)
            # a recording from another machine is fetched once, by one worker
            is_split = settings.split_ns > 0 and not scheme_of(recording.location)
            yield self._unit(plan_unit if is_split else recording_unit, (task,), _State(task))

    def _unit(self, function: Any, arguments: Tuple[Any, ...], state: _State) -> Unit:
        return Unit(function, arguments, _PRIORITIES[function], state)

    def _finished(self, unit: Unit, result: Any) -> Iterable[Unit]:
        state: _State = unit.tag
        if isinstance(result, BaseException):
            reason = f"could not be run: {type(result).__name__}: {result}"
            result = Division([], 0, reason) if unit.function is plan_unit else state.task.failed(reason)
        if unit.function is plan_unit:
            return self._planned(state, result)
        if unit.function is not segment_unit:
            self._end(result)
            return []
        state.left -= 1
        state.reason = state.reason or result.reason
        if state.left:
            return []
        if state.reason:
            self._end(state.task.failed(state.reason))
            return []
        return [self._unit(merge_unit, (state.task, state.plan, state.units), state)]

    def _planned(self, state: _State, plan: Division) -> Iterable[Unit]:
        """The units of a recording that was looked at."""
        task = state.task
        if plan.reason:
            self._end(task.failed(plan.reason))
            return []
        if len(plan.spans) < 2:
            return [self._unit(recording_unit, (task,), state)]
        state.plan, state.left = plan, len(plan.spans)
        state.units = [unit_of(self._settings, self._described, task.recording, span) for span in plan.spans]
        pairs = zip(plan.spans, state.units)
        return [self._unit(segment_unit, (task, span, unit), state) for span, unit in pairs]

    def _end(self, outcome: Outcome) -> None:
        """A recording is done."""
        self.outcomes[outcome.name] = outcome
        self._progress.recording_done()

    def _count(self, event: Tuple[float, Mapping[str, Any]]) -> None:
        """A worker reports frames."""
        message = event[1]
        name = message["name"]
        self._progress.advance(name, message["frames"], message["total"], self._sizes.get(name, 0))

    def _stop(self, client: Client, loop: Loop) -> None:
        """Stop the units of this run, and wait until they are."""
        with suppress(Exception):  # the cause is raised, not what follows from it
            client.run(messaging.cancel, self._run, on_error="return")
            loop.cancel()
            end = time.monotonic() + STOPPING_S
            while any(client.run(messaging.is_running, self._run).values()) and time.monotonic() < end:
                time.sleep(0.05)

    # ----------------------------------------------------------------------------------------------------- documents

    def _write_settings(self) -> None:
        settings = {
            **self._described,
            "topic": self._settings.topic,
            "compare": str(self._settings.compare or ""),
            "reference": str(self._settings.reference or ""),
            "tolerances": dict(self._settings.tolerances),
            "split_s": self._settings.split_ns / 1e9,
            "names": {**known_names(self._folder), **{row.location: row.name for row in self._recordings}},
        }
        with replacing(self._folder / SETTINGS, force=True) as stream:
            stream.write(json.dumps(settings, indent=1).encode())

    def write_overview(self) -> None:
        """Write the page with all recordings.

        Raises:
            OSError: It cannot be written.
        """
        counts = Counter(outcome.status for outcome in self.outcomes.values())
        names = ("version", "sensor", "products", "resolution", "calibration")
        facts = {
            "recordings": ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "none",
            "frames": str(sum(outcome.frames for outcome in self.outcomes.values())),
            **{name: self._described[name] or "none" for name in names},
        }
        outcomes = [self.outcomes[row.name] for row in self._recordings]
        write_overview(self._folder, _Results(self._folder, outcomes), facts)


class _Results(Sequence[RecordingResult]):
    """What the overview lists; pictures are read one by one."""

    def __init__(self, folder: Path, outcomes: Sequence[Outcome]) -> None:
        self._folder = folder
        self._outcomes = outcomes

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, place: int) -> RecordingResult: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[RecordingResult]: ...

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return _Results(self._folder, self._outcomes[place])
        outcome = self._outcomes[place]
        if outcome.status == "failed":
            return outcome.shown()
        return (completed(self._folder, outcome.name, outcome.unit) or outcome).shown()
