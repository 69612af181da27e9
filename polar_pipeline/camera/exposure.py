"""Exposure control for polarization: the brightest angles of superpixels stay below saturation. No I/O."""

from __future__ import annotations

import math
from collections import deque
from statistics import NormalDist
from typing import Deque, Mapping, Optional, Tuple

import numpy as np

from polar_pipeline.camera.settings import CameraSettings
from polar_pipeline.quality.brightest import RANKS, BrightestAngles

#: Decibels of a gain that doubles numbers.
DECIBELS_PER_STOP = 20 * math.log10(2)
#: Level from which a frame is saturated, as a share of full scale, and lowest level that counts: below is noise.
SATURATED, _DARKEST = 0.98, 2e-3
#: Stops by which a frame must be too bright, or too dark, before the exposure changes. A little too dark does no harm,
#: and noise makes the brightest angles of dark frames brighter than they are.
DARKEN_BAND, BRIGHTEN_BAND = 0.12, 0.2
#: Frames in a row that must ask for a change: `_CONFIRM_FRAMES` to darken, or to brighten by more than `_LARGE_STOPS`;
#: `_BRIGHTEN_FRAMES` to brighten by less.
_CONFIRM_FRAMES, _BRIGHTEN_FRAMES, _LARGE_STOPS = 2, 6, 2.0
#: The light is taken to blink if, at most `_UNDO_FRAMES` after a brightening, a darkening undoes more than
#: `_UNDO_SHARE` of it, or a frame after the brightening was not saturated and later ones are. Then for `_BLINK_FRAMES`,
#: `_BLINK_HOLD_FRAMES` in a row must ask for a brightening, by at least a stop.
_UNDO_FRAMES, _UNDO_SHARE, _BLINK_FRAMES, _BLINK_HOLD_FRAMES = 30, 0.25, 120, 48
#: If a darkening leaves more than this share of the saturated superpixels saturated, a small area is very bright.
_UNCHANGED_SHARE = 0.7
#: Brightness of scenes in stops is about normally distributed with this standard deviation.
_SCENE = NormalDist(0.0, 1.0)
#: Smallest share of superpixels without saturation that is told from 0, and largest number of stops by which a frame is
#: taken to exceed full scale.
_MIN_SHARE, _MAX_OVEREXPOSURE_STOPS = 1e-4, 6.5
#: Frames after a change whose exposure is unknown if they do not state it.
_UNSTATED = 8


def stops_to_add(brightest: BrightestAngles, settings: CameraSettings, spread: Optional[np.ndarray] = None) -> float:
    """Return by how many stops a frame should have been exposed more to reach the target; negative: less.

    Args:
        brightest: Measured at the percentile of the settings.
        settings: Target and percentile.
        spread: Stops from `RANKS` of a well exposed frame to its percentile; None if there was no such frame.
    """
    level, target = brightest.level, settings.exposure_target
    if level < SATURATED:
        return math.log2(target / max(level, _DARKEST))
    rank, share = settings.exposure_percentile / 100, 1 - brightest.saturated
    above = _SCENE.inv_cdf(min(rank, 1 - _MIN_SHARE)) - _SCENE.inv_cdf(min(max(share, _MIN_SHARE), rank))
    if spread is not None:
        stops = float(np.interp(share, RANKS, spread))
        above = stops if share > 0.5 else max(above, stops)
    return math.log2(target) - min(max(above, 0.0), _MAX_OVEREXPOSURE_STOPS)


class ExposureControl:
    """Law that chooses exposure time and gain by the brightest angles of each frame: by saturation and level alone.

    Exposures are in EV, log2 of microseconds at 0 dB. Frames state the exposure with which they were taken. So what a
    frame asks for does not depend on how late former changes take effect, and no dead time has to be guessed. The
    camera gets an exposure that several frames in a row ask for.

    How much too bright a saturated frame is follows from its share of saturated superpixels, by the distribution in the
    last well exposed frame. Without one, or if more than half is saturated, the usual distribution of scenes counts
    too, and the darker exposure is taken, as too dark a frame is measured exactly. If a darkening changes the share
    little, a small area is very bright, and the next darkening is large enough to measure it.

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
        # exposure of the last change
        self._ev = float(np.clip(_ev(exposure_us or self._shortest, gain_db or 0.0), *self._limits))
        # exposures that the last frames ask for, and whether these frames are saturated
        self._asked: Deque[Tuple[float, bool]] = deque(maxlen=_BLINK_HOLD_FRAMES)
        self._spread: Optional[np.ndarray] = None  # stops from `RANKS` of a well exposed frame to its percentile
        self._share = 0.0  # of saturated superpixels at the last darkening, until it has proved right
        self._before = self._spoiled = self._ev  # before the last brightenings, and before the last darkening
        self._is_confirmed = False  # whether a frame was not saturated after the last brightening
        self._frame = 0
        self._changed = self._brightened = -math.inf  # frames of the last change, and of the last brightening
        self._guarded = self._blinks = 0.0  # frames until which the light may blink, and certainly does

    def step(
        self, brightest: BrightestAngles, exposure_us: Optional[float], gain_db: Optional[float]
    ) -> Optional[Tuple[float, float]]:
        """Judge the next frame; return a new exposure time in microseconds and gain in decibels, or None to keep them.

        Args:
            brightest: Measured at the percentile of the settings.
            exposure_us: Exposure time that the frame states; None if it states none.
            gain_db: Gain that the frame states; None if it states none.
        """
        self._frame += 1
        is_stated = exposure_us is not None and (gain_db is not None or self._highest_gain <= self._lowest_gain)
        if not is_stated and self._frame - self._changed <= _UNSTATED:
            return None
        time_us, gain = self.command
        own = _ev(time_us if exposure_us is None else max(exposure_us, 1.0), gain if gain_db is None else gain_db)
        self.stops = stops_to_add(brightest, self._settings, self._spread)
        asked, is_saturated = own + self.stops, brightest.level >= SATURATED
        is_current = abs(own - self._ev) < DARKEN_BAND
        band = DARKEN_BAND / 2 if self._share else DARKEN_BAND  # the last darkening was an estimate
        if not is_saturated:
            self._is_confirmed |= is_current
            self._share = 0.0 if is_current and self.stops < BRIGHTEN_BAND else self._share
            if brightest.levels is not None and self.stops < _LARGE_STOPS:
                self._spread = np.log2(brightest.level / np.maximum(brightest.levels, _DARKEST))
        elif is_current and brightest.saturated > _UNCHANGED_SHARE * self._share > 0:
            asked = own - _MAX_OVEREXPOSURE_STOPS
            if brightest.saturated < 0.5:  # a lamp, which may blink
                self._guarded = max(self._guarded, self._frame + _UNDO_FRAMES)
        elif asked > self._ev - (0 if is_current else 1):
            asked = self._ev  # a saturated frame never brightens; the last darkening may be on its way
        self._asked.append((float(np.clip(asked, *self._limits)), is_saturated))
        if len(self._asked) < _CONFIRM_FRAMES or not (self._darken(brightest.saturated, band) or self._brighten()):
            return None
        self._changed = self._frame
        return self.command

    def _darken(self, saturated: float, band: float) -> bool:
        """Darken if the last frames ask for it; return whether they do. `saturated` is the share in the last frame."""
        recent, before = list(self._asked)[-_CONFIRM_FRAMES:], self._ev
        exact = [ev for ev, is_saturated in recent if not is_saturated]
        darker = max(exact) if exact else recent[-1][0]
        if darker >= before - band:
            return False
        is_alike = before - darker > _UNDO_SHARE * (before - self._before) or (self._is_confirmed and not exact)
        if is_alike and self._frame - self._brightened <= _UNDO_FRAMES:
            self._guarded = self._blinks = self._frame + _BLINK_FRAMES
            darker = darker if exact else self._before
        self._ev, self._spoiled, self._share = darker, before, 0.0 if exact else saturated
        self._brightened = -math.inf
        return True

    def _brighten(self) -> bool:
        """Brighten if enough of the last frames ask for it; return whether they do."""
        asked, before = [ev for ev, _ in self._asked], self._ev
        frames = _CONFIRM_FRAMES if min(asked[-_CONFIRM_FRAMES:]) > before + _LARGE_STOPS else _BRIGHTEN_FRAMES
        returns = self._frame <= self._guarded and min(asked[-frames:]) > self._spoiled - BRIGHTEN_BAND
        if returns and min((ev for ev, is_full in self._asked if not is_full), default=before) < self._spoiled - 1:
            self._guarded = self._blinks = self._frame + _BLINK_FRAMES
        is_blinking = self._frame <= self._blinks
        frames = _BLINK_HOLD_FRAMES if returns or is_blinking else frames
        brighter = min(asked[-frames:])
        if len(asked) < frames or brighter <= before + (1 if is_blinking else BRIGHTEN_BAND):
            return False
        if self._frame - self._brightened > _UNDO_FRAMES:
            self._before = before
        self._ev, self._brightened, self._is_confirmed, self._share = brighter, self._frame, False, 0.0
        return True

    @property
    def command(self) -> Tuple[float, float]:
        """Exposure time in microseconds and gain in decibels that the camera should have; gain, which adds noise, last.

        If lamps flicker, a time of half a period of the mains or more is a multiple of it, if gain can make up for it.
        """
        ev = self._ev
        time_us = min(max(2.0 ** (ev - self._lowest_gain / DECIBELS_PER_STOP), self._shortest), self._longest)
        steady_us = time_us // self._flicker_us * self._flicker_us if self._flicker_us else 0.0
        if steady_us >= self._shortest and _ev(steady_us, self._highest_gain) >= ev:
            time_us = steady_us
        gain_db = DECIBELS_PER_STOP * (ev - math.log2(time_us))
        return time_us, min(max(gain_db, self._lowest_gain), self._highest_gain)


def _ev(exposure_us: float, gain_db: float) -> float:
    return math.log2(exposure_us) + gain_db / DECIBELS_PER_STOP
