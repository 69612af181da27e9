"""The calibration of a sensor: four parameters of every pixel, their file, and the correction of frames.

A pixel behind a polarizer of nominal angle t measures ``I = d + g/2 (S0 + c S1 + s S2)``, as a share of full scale,
with ``c = m cos 2T`` and ``s = m sin 2T`` for its own angle T and ``m = (r - 1)/(r + 1)`` for its extinction ratio r.
What an ideal pixel would have measured is

    z = (I - d) u          (S1, S2) from z of the four pixels of its superpixel          I' = z + e1 S1 + e2 S2

with the black level d, ``u = 1/g`` and ``(e1, e2) = (cos 2t - c, sin 2t - s)/2 M^-1``, where these (S1, S2) are M times
the true ones.

Files and kernels have these two terms in the frame of the pixel's own polarizer,

    own = e1 cos 2t + e2 sin 2t         other = e2 cos 2t - e1 sin 2t
    I' = z + own (z[t] - z[t + 90]) + other (z[t + 45] - z[t + 135])

A rotation of all polarizers by the same angle changes these terms of all pixels alike: their range stays small, and the
steps of their codes fine.
"""

from polar_pipeline.calibration.calibration import Calibration, PixelParameters
from polar_pipeline.calibration.correction import Correction, superpixel_phase
from polar_pipeline.calibration.file import load_calibration, save_calibration

__all__ = ["Calibration", "Correction", "PixelParameters", "load_calibration", "save_calibration", "superpixel_phase"]
