"""Calibration of a sensor from dark frames and frames of a rotated polarizer before uniform light.

The polarizer is taken as ideal: behind it the light is linearly polarized completely. What it lacks is counted among
the extinction ratios of the pixels, since no frame can tell the two apart.
"""
