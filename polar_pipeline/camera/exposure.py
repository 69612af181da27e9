"""Exposure control for polarization: the brightest angles of superpixels stay below saturation. No I/O."""

from __future__ import annotations

import math
from collections import deque
from statistics import NormalDist
from typing import Deque, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.quality.brightest import RANKS, BrightestAngles

#: Decibels of a gain that doubles numbers.
DECIBELS_PER_STOP = 20 * math.log10(2)
#: Level from which a frame is saturated, as a share of full scale, and lowest level that counts: below is noise.
SATURATED, _DARKEST = 0.98, 2e-3
#: Stops by which a frame must be too bright, or too dark, before the exposure changes. A little too dark does no harm.
DARKEN_BAND, BRIGHTEN_BAND = 0.12, 0.2
#: Most by which noise raises the percentile of dark frames, and stops below it and fewest ranks of a bright part.
_DARK_ERROR, _BRIGHT_PART, _MIN_RANKS = 7.5e-3, 1.0, 4
#: Brightness of scenes in stops is about normally distributed with this standard deviation.
_SCENE = NormalDist(0.0, 1.0)
#: Smallest share of superpixels that counts, most stops by which a frame exceeds full scale, and stops between
#: neighboring ranks of a distribution from which there is a gap.
_SMALLEST_SHARE, _LARGEST_EXCESS, _GAP = 1e-4, 6.5, 1.0
#: Multiples of the allowed share of saturated superpixels: too many, surely too many, and most that may be glints.
_TOO_MANY, _SURELY_TOO_MANY, _GLINTS = 1.1, 1.5, 3.0
#: Part of the saturated superpixels that a darkening leaves if it was much too small; stops that are surely too dark.
_UNCHANGED, _SURELY_DARK = 0.7, 2.0
#: Frames in a row that must ask for a sure change, for an unsure one, and for a brightening if the light alternates.
_SURE_FRAMES, _UNSURE_FRAMES, _ALTERNATING_FRAMES = 2, 6, 48
#: Last frames whose changes show whether the light alternates, and frames for which it then counts as alternating.
_RECENT, _MEMORY = 60, 120
#: Most frames until a command shows, most stops by which a camera rounds it, and doublings of the wait to repeat it.
_ARRIVAL, _ROUNDING, _DOUBLINGS = 8, 1.1, 6


class _Request(NamedTuple):
    """Exposure in EV that a frame asks for. It is an estimate if the frame is saturated."""

    ev: float
    is_saturated: bool
    is_sure: bool


def stops_to_add(brightest: BrightestAngles, settings: CameraSettings, spread: Optional[np.ndarray] = None) -> float:
    """Return by how many stops a frame should have been exposed more to reach the target; negative: less.

    Args:
        brightest: Measured at the percentile of the settings.
        settings: Target and percentile.
        spread: Stops from `RANKS` of a well exposed frame to its percentile; None if there was no such frame.
    """
    level, target = brightest.level, settings.exposure_target
    if level >= SATURATED:
        return math.log2(target) - _excess(brightest.saturated, settings.exposure_percentile / 100, spread)[0]
    first = len(RANKS) if spread is None else np.count_nonzero(spread >= _BRIGHT_PART)
    if spread is not None and brightest.levels is not None and first <= len(RANKS) - _MIN_RANKS:
        inside = first + 3 * (len(RANKS) - first) // 8  # noise changes the level there little
        level = min(level, max(brightest.levels[inside] * 2 ** spread[inside], level - _DARK_ERROR, level / 2))
    return math.log2(target / max(level, _DARKEST))


def _excess(saturated: float, rank: float, spread: Optional[np.ndarray]) -> Tuple[float, float]:
    """Return the likely and the largest number of stops by which a percentile exceeds full scale.

    If full scale lies within a gap of the distribution, the bright border is likely, and the dark one is the limit.
    """
    share = min(max(1 - saturated, _SMALLEST_SHARE), rank)
    likely = _SCENE.inv_cdf(min(rank, 1 - _SMALLEST_SHARE)) - _SCENE.inv_cdf(min(share, 1 - _SMALLEST_SHARE))
    largest = _LARGEST_EXCESS  # of a bright area that was not there before
    if spread is not None:
        ranks, stops = np.append(RANKS[rank > RANKS], rank), np.append(spread[rank > RANKS], 0.0)
        above = max(int(np.searchsorted(ranks, share)), 1)
        is_gap = stops[above - 1] - stops[above] > _GAP
        measured = float(stops[above] if is_gap else np.interp(share, ranks, stops))
        likely = measured if share > 0.5 else max(likely, measured)
        largest = float(stops[above - 1]) if is_gap else largest
    return min(max(likely, 0.0), _LARGEST_EXCESS), min(largest, _LARGEST_EXCESS)


class ExposureControl:
    """Law that chooses exposure time and gain by the brightest angles of each frame: by saturation and level alone.

    Exposures are in EV, log2 of microseconds at 0 dB. The law has four principles:

    - Frames state their exposure, so what they ask for does not depend on commands that are on their way. Once a
      command had time to arrive, the stated exposure counts: the command may have been lost, rounded or limited.
    - The less sure a change is, the more frames in a row must ask for it.
    - The share of saturated superpixels and the last well exposed frame limit how bright a saturated frame is. The
      likely darkening comes first. If the share stays, the largest follows, as dark frames are measured exactly.
    - Recent changes in both directions show that the light alternates. The exposure is then that of the bright light.

    Args:
        settings: Target, percentile, and limits of the exposure time and the gain.
        ranges: Lowest and highest `exposure_us` and `gain_db` of the camera; a gain that it lacks stays as it is.
        exposure_us, gain_db: Those that the camera has now; None for a gain that is unknown.

    Attributes:
        stops: Stops to add to the exposure of the last frame; NaN before the first.
    """

    def __init__(
        self,
        settings: CameraSettings,
        ranges: Mapping[str, Tuple[float, float]],
        exposure_us: float,
        gain_db: Optional[float] = None,
    ) -> None:
        self.stops = math.nan
        self._settings = settings
        shortest, longest = ranges.get("exposure_us", (1.0, settings.exposure_max_us))
        period_us = 1e6 / settings.frame_rate if settings.frame_rate and settings.trigger == "free" else math.inf
        self._shortest = max(shortest, 1.0)
        self._longest = max(min(longest, settings.exposure_max_us, period_us), self._shortest)
        low, high = ranges.get("gain_db", (0.0, 0.0))
        self._lowest_gain = max(low, 0.0)  # less than 0 dB may end below full scale
        self._highest_gain = max(min(high, settings.gain_max_db), self._lowest_gain)
        self._flicker_us = 1e6 / (2 * settings.flicker_hz) if settings.flicker_hz else 0.0
        self._limits = _ev(self._shortest, self._lowest_gain), _ev(self._longest, self._highest_gain)
        start = float(np.clip(np.nan_to_num(_ev(max(exposure_us, 1.0), gain_db or 0.0)), *self._limits))
        # EV of the last command, of the camera once all commands have arrived, and of the frame at the last command
        self._command = self._current = self._at_command = start
        self._frame = self._commanded = self._alternates_until = 0  # frames: current, of the command, of alternation
        self._is_followed, self._is_rounded, self._repeats = True, False, 0  # how the camera took the last command
        self._step_up = math.nan, math.nan  # EV of the lowest command that a coarse camera rounded up, and what it made
        self._requests: Deque[_Request] = deque(maxlen=_ALTERNATING_FRAMES)  # since the last command
        self._spread: Optional[np.ndarray] = None  # stops from `RANKS` of a well exposed frame to its percentile
        self._saturated = 0.0  # share of saturated superpixels at the last darkening, until it has proved right
        self._changes: List[Tuple[int, float, float]] = []  # recent ones: frame, EV before it, and EV after it

    def step(
        self, brightest: BrightestAngles, exposure_us: Optional[float], gain_db: Optional[float]
    ) -> Optional[Tuple[float, float]]:
        """Judge the next frame; return a new exposure time in microseconds and gain in decibels, or None to keep them.

        Args:
            brightest: Measured at the percentile of the settings; frames with NaN are skipped.
            exposure_us: Exposure time that the frame states; None or NaN if it states none.
            gain_db: Gain that the frame states; None or NaN if it states none.
        """
        self._frame += 1
        has_arrived = self._frame - self._commanded > _ARRIVAL
        own = self._exposure_of(exposure_us, gain_db)
        if own is None or not math.isfinite(brightest.level + brightest.saturated):
            return None
        self._current = own if has_arrived else self._command
        self._is_followed |= abs(own - self._command) < DARKEN_BAND
        is_lost = has_arrived and not self._is_followed
        is_answered = self._repeats > 0 or own == self._step_up[1] or abs(own - self._at_command) > DARKEN_BAND / 4
        self._is_rounded = is_lost and is_answered and abs(own - self._command) < _ROUNDING
        self._changes = [change for change in self._changes if self._frame - change[0] < _RECENT]
        self._requests.append(self._judge(brightest, own))
        exposure = self._darker()
        exposure = self._brighter() if math.isnan(exposure) else exposure
        is_repeat = is_lost and abs(exposure - self._command) < DARKEN_BAND
        if math.isnan(exposure) or (is_repeat and self._frame - self._commanded <= _ARRIVAL << self._repeats):
            return None
        self._repeats = min(self._repeats + 1, _DOUBLINGS) if is_repeat else 0
        self._saturated = brightest.saturated if self._requests[-1].is_saturated else 0.0
        self._requests.clear()
        self._changes.append((self._frame, self._current, exposure))
        self._command = self._current = exposure
        self._commanded, self._at_command, self._is_followed = self._frame, own, False
        return self.command

    def _exposure_of(self, exposure_us: Optional[float], gain_db: Optional[float]) -> Optional[float]:
        """Return the exposure of a frame; if it states none, that of the last command once this has arrived."""
        time_us, gain = self.command
        has_time, has_gain = (value is not None and math.isfinite(value) for value in (exposure_us, gain_db))
        is_stated = has_time and (has_gain or self._highest_gain <= self._lowest_gain)
        if not is_stated and self._frame - self._commanded <= _ARRIVAL:
            return None
        return _ev(max(exposure_us or 1.0, 1.0) if has_time else time_us, (gain_db or 0.0) if has_gain else gain)

    def _judge(self, brightest: BrightestAngles, own: float) -> _Request:
        """Return what a frame with an exposure asks for; keep the distribution of a well exposed one."""
        self.stops = stops_to_add(brightest, self._settings, self._spread)
        ev, is_current = own + self.stops, abs(own - self._current) < DARKEN_BAND
        share, allowed = brightest.saturated, 1 - self._settings.exposure_percentile / 100
        if brightest.level < SATURATED:
            is_light_on = self.stops < BRIGHTEN_BAND or self._saturated < _GLINTS * allowed  # a large one may blink
            if is_current and is_light_on and self.stops > -DARKEN_BAND / 2:
                self._saturated = 0.0
            if brightest.levels is not None and self.stops < _SURELY_DARK:
                self._spread = np.log2(brightest.level / np.maximum(brightest.levels, _DARKEST))
            return _Request(float(np.clip(ev, *self._limits)), False, True)
        is_missed = is_current and share > _UNCHANGED * self._saturated > 0 and (self._is_followed or self._is_rounded)
        if is_missed:
            ev = own + math.log2(self._settings.exposure_target) - _excess(share, 1 - allowed, self._spread)[1]
        is_tolerable = not self._saturated and allowed < share <= _TOO_MANY * allowed
        if is_tolerable or ev > self._current or own > self._current + DARKEN_BAND:
            ev = self._current  # a saturated frame never brightens, and the last darkening may be on its way
        is_sure = share > _SURELY_TOO_MANY * allowed or (self._saturated > 0 and not is_missed)
        return _Request(float(np.clip(ev, *self._limits)), True, is_sure)

    def _darker(self) -> float:
        """Return the exposure to darken to, or NaN unless enough of the last frames ask for it."""
        limit = self._current - (BRIGHTEN_BAND if self._is_rounded else DARKEN_BAND / (2 if self._saturated else 1))
        last = list(self._requests)[-_SURE_FRAMES:]
        frames = _SURE_FRAMES if all(request.is_sure for request in last) else _UNSURE_FRAMES
        asked = [request.ev for request in self._requests][-frames:]
        if len(asked) < frames or max(asked) >= limit:
            return math.nan
        exact = [request.ev for request in last if not request.is_saturated]
        darker = max(exact, default=asked[-1])
        first = next((k for k, (_, before, after) in enumerate(self._changes) if after < before), _RECENT)
        former = [before for _, before, after in self._changes[first:] if after > before + 0.5]
        if not exact and former and former[-1] < limit:  # the light is back for which this exposure was measured
            darker = former[-1]
        if self._is_rounded and self._current > self._command:
            self._step_up = self._command, self._current
            darker = min(darker, self._command) - (self._current - self._command)
        return float(np.clip(darker, *self._limits))

    def _brighter(self) -> float:
        """Return the exposure to brighten to, or NaN unless enough of the last frames ask for it."""
        now = max(self._current, self._command) if self._is_rounded else self._current
        rises = [after > before for _, before, after in self._changes]
        turns = sum(rise != following for rise, following in zip(rises, rises[1:]))
        self._alternates_until = self._frame + _MEMORY if turns > 1 else self._alternates_until
        is_alternating = self._frame <= self._alternates_until or (turns > 0 and len(rises) > 2)
        asked = [request.ev for request in self._requests]
        is_sure = min(asked[-_SURE_FRAMES:]) > now + _SURELY_DARK
        frames = _ALTERNATING_FRAMES if is_alternating else _SURE_FRAMES if is_sure else _UNSURE_FRAMES
        brighter = min(asked[-frames:])
        lowest, made = self._step_up  # between them, less is asked for by as much as the camera made more
        brighter = 2 * lowest - made if lowest - DARKEN_BAND < brighter < made - DARKEN_BAND else brighter
        limit = now + (1.0 if is_alternating else BRIGHTEN_BAND)
        return brighter if len(asked) >= frames and brighter > limit else math.nan

    @property
    def command(self) -> Tuple[float, float]:
        """Exposure time in microseconds and gain in decibels that the camera should have; gain, which adds noise, last.

        If lamps flicker, a time of half a period of the mains or more is a multiple of it, if gain can make up for it.
        """
        ev = self._command
        time_us = min(max(round(2.0 ** (ev - self._lowest_gain / DECIBELS_PER_STOP), 6), self._shortest), self._longest)
        steady_us = time_us // self._flicker_us * self._flicker_us if self._flicker_us else 0.0
        if steady_us >= self._shortest and _ev(steady_us, self._highest_gain) >= ev:
            time_us = steady_us
        gain_db = round(DECIBELS_PER_STOP * (ev - math.log2(time_us)), 6)
        return time_us, min(max(self._lowest_gain, gain_db), self._highest_gain)


def _ev(exposure_us: float, gain_db: float) -> float:
    return math.log2(exposure_us) + gain_db / DECIBELS_PER_STOP
