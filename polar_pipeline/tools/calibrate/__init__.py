"""Calibration of a sensor from dark frames and frames of a rotated polarizer before uniform light.

Unless its extinction ratio is stated, the polarizer counts as ideal: behind it the light is linearly polarized
completely. Frames do not tell its extinction ratio from those of the pixels.

Arguments that recur: `black` is the black level as a share of full scale and `used` the mask of pixels that count, both
(H, W), `sensor` the mosaic of the frames' region, and `settings` are the sums of the frames of each setting.
"""
