"""The products as the CPU kernels (`kernels/cpu/polarimetry.hpp`) take them: where they go, and a frame's noise."""

from __future__ import annotations

import ctypes
from typing import Dict, Iterable, Optional, Sequence

import numpy as np

from polar_pipeline.colormaps import AOLP_MAP, DOLP_MAP
from polar_pipeline.noise import NoiseModel
from polar_pipeline.options import Options
from polar_pipeline.sensor.mosaic import ANGLES


class KernelImage(ctypes.Structure):
    """Where an image is stored, and the bytes of an element, which is float32, uint16 or uint8."""

    _fields_ = [("data", ctypes.c_void_p), ("itemsize", ctypes.c_int64)]


def kernel_image(array: Optional[np.ndarray]) -> KernelImage:
    """An array as the kernels take it; None for one that is not wanted."""
    return KernelImage() if array is None else KernelImage(array.ctypes.data, array.itemsize)


#: Products that the kernels compute, SSIM's aside, in the order of `struct Products` in `kernels/cpu/polarimetry.hpp`.
KERNEL_PRODUCTS = (
    *(f"angle_{angle}" for angle in ANGLES),
    *("unpolarized", "polarized", "polarizer"),
    *("intensity", "stokes", "dolp", "aolp", "preview", "dolp_sigma", "aolp_sigma", "aolp_color", "dolp_color"),
)


class KernelNoise(ctypes.Structure):
    """The noise of a frame. Build it with `make_noise`."""

    _fields_ = [
        ("gains", ctypes.c_void_p),
        ("period", ctypes.c_int32),
        ("channels", ctypes.c_int32),
        ("shot", ctypes.c_float),
        ("floor", ctypes.c_float),
        ("method", ctypes.c_float * 4),
        ("debiases", ctypes.c_int32),
        ("max_aolp_sigma", ctypes.c_float),
    ]


def make_noise(model: NoiseModel, options: Options, scale: float) -> KernelNoise:
    """The noise of a frame as the kernels take it. Keep the model while it is used.

    Args:
        model: The noise of the frame.
        options: What is computed from it.
        scale: One unit of an angle's intensity as a share of full scale.
    """
    period, _, channels, *_ = model.gains.shape
    limit = np.deg2rad(options.max_aolp_sigma) if options.max_aolp_sigma else np.pi
    numbers = (model.shot / scale, model.floor / scale**2, (ctypes.c_float * 4)(*model.method))
    return KernelNoise(model.gains.ctypes.data, period, channels, *numbers, options.debias, limit)


class Products(ctypes.Structure):
    """The arrays that products are written to. Build it with `make_products`, and keep the arrays while it is used."""

    _fields_ = [
        *((name, KernelImage) for name in KERNEL_PRODUCTS),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("is_uint16", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("min_total", ctypes.c_float),
        ("noise", ctypes.POINTER(KernelNoise)),
        ("polarizer_shares", ctypes.c_float * 2),
        ("fading", ctypes.c_float * 2),
        ("maps", ctypes.c_void_p * 2),
        ("linear", ctypes.c_void_p),
        ("flags", ctypes.c_void_p),
    ]


def make_products(
    out: Dict[str, np.ndarray],
    names: Iterable[str],
    pair: Sequence[np.ndarray],
    width: int,
    scale: float,
    min_total: float,
    options: Options,
    noise: Optional[KernelNoise] = None,
) -> Products:
    """The arrays that products are written to, and the scale of the angles.

    Args:
        out: Arrays by product.
        names: Those of them to compute.
        pair: (h, w) arrays for what SSIM compares: none, S0/2, or both estimates of it, as float32; or as uint16 both
            sums of two angles, in units of an angle's intensity.
        width: Output pixels per row.
        scale: One unit of an angle's intensity as a share of full scale.
        min_total: Smallest I0 + I45 + I90 + I135, in such units, that has a polarization; 0 if no product asks for it.
        options: Those of the products.
        noise: That of the frame; None if nothing depends on it.
    """
    products = Products(width=width, scale=scale, min_total=min_total)
    products.polarizer_shares, products.fading = options.polarizer, options.fading
    products.maps[:] = AOLP_MAP.ctypes.data, DOLP_MAP.ctypes.data
    if noise is not None:
        products.noise = ctypes.pointer(noise)
    for name in names:
        if name in KERNEL_PRODUCTS:
            setattr(products, name, kernel_image(out[name]))
    for field, image in zip(("first", "second"), pair):
        setattr(products, field, image.ctypes.data)
        products.is_uint16 = image.dtype == np.uint16
    return products
