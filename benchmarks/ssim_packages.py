"""SSIM of other packages on the GPU, with which `ssim.py` compares the package's kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

import numpy as np
from timing import FRAMES

from polar_pipeline.polarimetry.coefficients import SSIM_C1, SSIM_C2, SSIM_WINDOW


class Images(NamedTuple):
    """(FRAMES, H, W) float16 in [0, 1]: what is compared, here and on the GPU."""

    x: np.ndarray
    y: np.ndarray
    gpu_x: Any
    gpu_y: Any


@dataclass(frozen=True)
class Implementation:
    """An implementation of SSIM that is measured.

    Attributes:
        batch: Map and mean of all frames, those of each or of all; what it returns is ignored.
        one: The same of one frame.
        map_of: The map of a frame.
        recorded: Whether it goes into a graph: it does if it launches in the current stream.
        mirrored: Whether the picture goes on as a mirror image beyond its border.
        facts: For the report.
    """

    batch: Callable[[], Any]
    one: Callable[[int], Any]
    map_of: Callable[[int], np.ndarray]
    recorded: bool = False
    mirrored: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)


def torch_implementation(
    mean: Callable[[Any, Any], Any], maps: Callable[[Any, Any], Any], images: Images
) -> Implementation:
    """A package of PyTorch.

    Args:
        mean: What its users call: from two (N, 1, H, W) tensors to the mean of all, by way of the map.
        maps: The map alone.
        images: In the element type that the package takes.
    """
    torch = import_module("torch")
    x, y = (torch.as_tensor(image, device="cuda")[:, None] for image in images[:2])

    def run(first: int = 0, count: int = FRAMES) -> Any:
        with torch.no_grad():
            return mean(x[first : first + count], y[first : first + count])

    def map_of(frame: int) -> np.ndarray:
        with torch.no_grad():
            return maps(x[frame : frame + 1], y[frame : frame + 1])[0, 0].float().cpu().numpy()

    return Implementation(run, partial(run, count=1), map_of, mirrored=False)


def as_float(images: Images) -> Images:
    """The same images as float32."""
    return Images(*(image.astype(np.float32) for image in images))


def fused_ssim(images: Images) -> Implementation:
    """https://github.com/rahul-goel/fused-ssim, inference."""
    package = import_module("fused_ssim")
    return torch_implementation(
        lambda x, y: package.fused_ssim(x, y, train=False),
        lambda x, y: package.FusedSSIMMap.apply(SSIM_C1, SSIM_C2, x, y, "same", False),
        as_float(images),
    )


def fussim_float(images: Images) -> Implementation:
    """https://github.com/OpsiClear/fussim, inference."""
    package = import_module("fussim")
    return torch_implementation(
        lambda x, y: package.fused_ssim(x, y, train=False),
        lambda x, y: package.FusedSSIMMap.apply(SSIM_C1, SSIM_C2, x, y, "same", False, SSIM_WINDOW),
        as_float(images),
    )


def fussim_half(images: Images) -> Implementation:
    """The same on halves, as under autocast; its kernels give the map, its functions do not."""
    package, torch = import_module("fussim"), import_module("torch")

    def mean(x: Any, y: Any) -> Any:
        with torch.autocast("cuda"):
            return package.fused_ssim(x, y, train=False)

    kernels = package._ensure_cuda_extension()
    return torch_implementation(mean, lambda x, y: kernels.fusedssim_fp16(SSIM_WINDOW, SSIM_C1, SSIM_C2, x, y), images)


#: Arguments with which scikit-image and cucim follow Wang et al. (2004).
WANG = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0, "full": True}


def cucim(images: Images) -> Implementation:
    """https://github.com/rapidsai/cucim: a call a frame."""
    function = import_module("cucim.skimage.metrics").structural_similarity
    x, y = as_float(images)[2:]

    def run(frame: int) -> Any:
        return function(x[frame], y[frame], **WANG)

    def batch() -> None:
        for frame in range(FRAMES):
            run(frame)

    def map_of(frame: int) -> np.ndarray:
        return run(frame)[1].get()

    return Implementation(batch, run, map_of)


#: Implementations by the name that results give them.
OTHERS: Dict[str, Callable[[Images], Implementation]] = {
    "fused-ssim": fused_ssim,
    "fussim": fussim_float,
    "fussim half": fussim_half,
    "cucim": cucim,
}


def installed(make: Callable[[Images], Implementation], images: Images) -> Optional[Implementation]:
    """The implementation; None if its package is not installed."""
    try:
        return make(images)
    except ImportError:
        return None
