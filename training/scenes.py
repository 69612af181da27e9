"""Polarized scenes for training, drawn on a GPU: dead leaves, photographs, text and gratings.

Intensity and polarization have textures and edges partly of their own, so that a network cannot learn that they always
go together. A scene is of one of the `KINDS`:

    natural      surfaces as photographs show them: most edges are of intensity, some of polarization alone
    polarized    polarization with textures: gratings, fabric and text of DoLP or AoLP, often where intensity has none
    charts       sharp unpolarized text and gratings, with little polarization
    even         a few large surfaces, most of them without texture

Photographs are those of scikit-image that are in the public domain or CC0 (`PHOTOGRAPHS`); everything else is drawn
here.
"""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Sequence, Tuple, Union

import cv2
import numpy as np
import skimage.data
import torch
from torch import Tensor
from torch.nn import functional

#: Names of images in `skimage.data`. Public domain (NASA): astronaut, hubble_deep_field, moon. CC0: the others.
PHOTOGRAPHS = (
    *("astronaut", "brick", "camera", "chelsea", "clock", "coffee", "grass", "gravel", "hubble_deep_field", "moon"),
    "rocket",
)


class Kind(NamedTuple):
    """What scenes of a kind are like.

    Attributes:
        surfaces: Least and largest number of surfaces.
        photographs: Share of scenes whose intensity is a photograph.
        plain: Share of surfaces whose intensity has no texture.
        unpolarized: Share of surfaces with a DoLP of at most 0.03.
        strong: Share of surfaces with a DoLP of 0.3 to 0.95.
        textured: Share of surfaces whose DoLP has a texture of its own, and of those whose AoLP has.
        curved: Share of surfaces that polarize as smooth curved ones do: by their slope, along or across it.
    """

    surfaces: Tuple[int, int]
    photographs: float
    plain: float
    unpolarized: float
    strong: float
    textured: float
    curved: float


KINDS: Dict[str, Kind] = {
    "natural": Kind((40, 200), 0.3, 0.2, 0.35, 0.2, 0.2, 0.25),
    "polarized": Kind((40, 200), 0.1, 0.6, 0.3, 0.7, 0.8, 0.05),
    "charts": Kind((40, 200), 0.1, 0.0, 0.6, 0.3, 0.05, 0.05),
    "even": Kind((1, 12), 0.0, 0.8, 0.4, 0.3, 0.05, 0.3),
}


class Painter:
    """Draws scenes at twice the resolution of the sensor, which the lens and the pixels then blur.

    Args:
        size: Height and width of scenes in pixels of the sensor.
        device: Where they are drawn.
        seed: Of all that is random.
    """

    def __init__(self, size: int, device: torch.device, seed: int) -> None:
        self._device, self._fine = device, 2 * size
        torch.manual_seed(seed)
        self._rng = np.random.default_rng(seed)
        self._photographs = [self._gray(getattr(skimage.data, name)()) for name in PHOTOGRAPHS]
        self._texts = [self._gray(self._text()) for _ in range(4)]
        places = torch.arange(self._fine, device=device).float()
        self._y, self._x = places[:, None], places[None, :]

    def scenes(self, count: int, kind: Kind) -> Tensor:
        """Draw scenes.

        Returns:
            (count, 4, size, size) in [0, 1]: light behind polarizers of 0, 45, 90 and 135 degrees.
        """
        n, many = count, int(self._rng.integers(*kind.surfaces))
        surfaces, pieces = self._leaves(n, many, 4), self._leaves(n, many // 4 + 1, 8)
        light, base = self._light(n, kind, surfaces, many)
        # surfaces of polarization: some are those of intensity, some have edges of their own
        follows = self._coin(self._uniform(0, 1 if kind.textured < 0.5 else 0.6, n, 1), n, many + 1)
        areas = torch.where(_of(follows, surfaces) > 0, surfaces, pieces + many + 1)
        degree, angle = self._polarization(n, kind, areas, int(areas.max()) + 1)
        share = _of(self._pick((1.0, 0.0, 0.5), (0.5, 0.3, 0.2), n, int(areas.max()) + 1), areas)
        s0 = share * light + (1 - share) * base  # light that is polarized has the texture of its surface, or none
        s1, s2 = s0 * degree * torch.cos(2 * angle), s0 * degree * torch.sin(2 * angle)
        s0 = torch.maximum(light, torch.hypot(s1, s2) / 0.98) + self._uniform(0, 0.03, n, 1, 1)
        return self._record(torch.stack([s0, s1, s2], 1))

    # ------------------------------------------------------------------------------------------------ what scenes show

    def _light(self, n: int, kind: Kind, surfaces: Tensor, many: int) -> Tuple[Tensor, Tensor]:
        """Return the light of scenes, and the same without textures."""
        photograph = self._crops(self._photographs, n)
        contrast = (photograph - photograph.mean((1, 2), True)) / photograph.std((1, 2), keepdim=True).clamp_min(0.05)
        textures = [0.6 * contrast, 0.4 * self._fractal(n), 0.7 * self._gratings(n), self._text_crops(n)]
        strength = torch.rand(n, many + 1, device=self._device) ** 1.5 * (1 - self._coin(kind.plain, n, many + 1))
        texture = self._one_each(textures, 0.2, strength, surfaces)
        albedo = _of(self._uniform(math.log(0.04), 0, n, many + 1).exp(), surfaces)
        shade = torch.exp(self._uniform(0.1, 0.6, n, 1, 1) * self._smooth(n, 3))
        light, base = albedo * torch.exp(texture * self._uniform(0.3, 1, n, 1, 1)) * shade, albedo * shade
        whole = self._coin(kind.photographs, n, 1, 1) > 0
        shown = (0.03 + 0.97 * photograph.pow(self._uniform(1, 2.2, n, 1, 1))) * shade
        return torch.where(whole, shown, light), torch.where(whole, shown, base)

    def _polarization(self, n: int, kind: Kind, areas: Tensor, many: int) -> Tuple[Tensor, Tensor]:
        """Return DoLP and AoLP of scenes by their areas."""
        choice = torch.rand(n, many, device=self._device)
        weak, strong = self._uniform(0.03, 0.35, n, many), self._uniform(0.3, 0.95, n, many)
        degree = torch.where(choice < 1 - kind.strong, weak, strong)
        degree = torch.where(choice < kind.unpolarized, self._uniform(0, 0.03, n, many), degree)
        degree = degree * torch.where(self._coin(0.3, n, 1) > 0, self._uniform(0.1, 0.5, n, 1), degree.new_ones(()))
        angle = self._uniform(0, math.pi, n, many)
        near = angle[:, :1] + 0.15 * torch.randn(n, many, device=self._device)
        angle = torch.where(self._coin(0.3, n, 1) > 0, near, angle)  # of one light
        textures = [self._gratings(n), self._gratings(n), self._text_crops(n), 0.5 * self._fractal(n)]
        of_degree = self._one_each(textures, 1 - kind.textured, self._uniform(0.1, 1, n, many), areas)
        of_angle = self._one_each(textures, 1 - kind.textured, self._uniform(-3, 0.5, n, many).exp() / 2, areas)
        bend = _of(self._coin(0.5, n, many) * torch.randn(n, many, device=self._device).abs(), areas)
        degrees = _of(degree, areas) * (1 + of_degree.clamp(-1, 1)) * (1 + 0.4 * self._smooth(n, 5)).clamp(0.1, 2)
        angles = _of(angle, areas) + of_angle + 0.7 * bend * self._smooth(n, 4)
        # smooth curved surfaces: DoLP by the slope, AoLP along or across it
        down, right = torch.gradient(self._smooth(n, 8), dim=(1, 2))
        slope = (torch.hypot(down, right) * self._fine / 40).clamp(0, 1.5)
        curved = _of(self._coin(kind.curved, n, many), areas)
        degrees = degrees * (1 - curved + curved * 1.3 * torch.sin(slope) ** 2)
        along = torch.atan2(down, right) + math.pi / 2 * (_of(angle, areas) > math.pi / 2)
        return degrees.clamp(0, 0.98), torch.where(curved > 0, along, angles)

    def _record(self, stokes: Tensor) -> Tensor:
        """Blur Stokes vectors by a lens, average over pixels, and convert them to light behind polarizers."""
        n = len(stokes)
        spread = 2 * self._uniform(0.3, 0.8, n, 1)
        places = torch.arange(-5, 6, device=self._device)[None]
        taps = torch.exp(-(places**2) / (2 * spread**2))
        taps = (taps / taps.sum(1, keepdim=True)).repeat_interleave(3, 0)[:, None, None, :]
        image = stokes.reshape(1, 3 * n, self._fine, self._fine)
        for _ in range(2):  # along the rows, then along the columns
            image = functional.conv2d(functional.pad(image, (5, 5, 0, 0), "reflect"), taps, groups=3 * n).mT
        s0, s1, s2 = functional.avg_pool2d(image.reshape(n, 3, self._fine, self._fine), 2).unbind(1)
        angles = torch.stack([s0 + s1, s0 + s2, s0 - s1, s0 - s2], 1) / 2
        brightest = torch.quantile(angles.flatten(1)[:, ::37], 0.999, dim=1)[:, None, None, None]
        return (angles / brightest * self._uniform(0.7, 1.1, n, 1, 1, 1)).clamp(0, 1)

    # ---------------------------------------------------------------------------------------------------------- pieces

    def _leaves(self, n: int, count: int, smallest: float) -> Tensor:
        """Draw overlapping discs, boxes and rings: (n, size, size) numbers, 0 to `count`, of what is in front."""
        labels = torch.zeros(n, self._fine, self._fine, dtype=torch.int64, device=self._device)
        largest = 0.35 * self._fine
        share = self._rng.uniform(0, 1, count)
        radii = np.where(  # half of them by the power law of photographs, half evenly on a scale of logarithms
            np.arange(count) % 2,
            (smallest**-2 + share * (largest**-2 - smallest**-2)) ** -0.5,
            np.exp(math.log(smallest) + share * math.log(largest / smallest)),
        )
        for k, radius in enumerate(sorted(radii * np.exp(0.7 * self._rng.standard_normal(count)), reverse=True), 1):
            turn = self._uniform(0, math.pi, n, 1, 1)
            if k % 3 == 0:  # along the pixels, about
                turn = (turn * 2 / math.pi).round() * math.pi / 2 + 0.02 * torch.randn_like(turn)
            x, y = (at - self._uniform(0, self._fine, n, 1, 1) for at in (self._x, self._y))
            u = (x * torch.cos(turn) + y * torch.sin(turn)) / radius
            v = (y * torch.cos(turn) - x * torch.sin(turn)) / (radius * self._uniform(-2.5, 0, n, 1, 1).exp())
            distance = (torch.hypot(u, v), torch.maximum(u.abs(), v.abs()), (torch.hypot(u, v) - 1).abs() * 8)
            labels.masked_fill_(distance[(0, 0, 1, 1, 2)[int(self._rng.integers(5))]] < 1, k)
        return labels

    def _gratings(self, n: int) -> Tensor:
        """Draw gratings of 2.5 to 40 pixels of the sensor, straight or wavy, smooth or sharp; or two crossed ones."""

        def one() -> Tensor:
            turn = self._uniform(0, math.pi, n, 1, 1)
            turn = torch.where(self._coin(0.3, n, 1, 1) > 0, (turn * 4 / math.pi).round() * math.pi / 4, turn)
            frequency = math.pi / self._uniform(math.log(2.5), math.log(40), n, 1, 1).exp()
            wave = 3 * self._coin(0.5, n, 1, 1) * self._smooth(n, 4) + self._uniform(0, 2 * math.pi, n, 1, 1)
            across = self._x * torch.cos(turn) + self._y * torch.sin(turn)
            sharpness = self._uniform(0.3, 6, n, 1, 1)
            return torch.tanh(sharpness * torch.sin(frequency * across + wave)) / torch.tanh(sharpness)

        first = one()
        return torch.where(self._coin(0.25, n, 1, 1) > 0, first * one(), first)

    def _fractal(self, n: int) -> Tensor:
        """Draw noise of mean 0 and deviation 1 whose amplitude falls with a random power of the frequency."""
        down = torch.fft.fftfreq(self._fine, device=self._device)[:, None]
        right = torch.fft.rfftfreq(self._fine, device=self._device)[None]
        frequency = torch.hypot(down, right).clamp_min(1 / self._fine)
        spectrum = torch.fft.rfft2(torch.randn(n, self._fine, self._fine, device=self._device))
        image = torch.fft.irfft2(spectrum * frequency ** -self._uniform(0.3, 1.8, n, 1, 1), s=(self._fine, self._fine))
        image = image - image.mean((1, 2), True)
        return (image / image.std((1, 2), keepdim=True)).clamp(-3, 3)

    def _smooth(self, n: int, cells: int) -> Tensor:
        """Draw smooth noise of so many hills in a row."""
        coarse = torch.randn(n, 1, cells + 3, cells + 3, device=self._device)
        return functional.interpolate(coarse, (self._fine, self._fine), mode="bicubic", align_corners=True)[:, 0]

    def _text_crops(self, n: int) -> Tensor:
        return 2 * self._crops(self._texts, n) - 1

    def _crops(self, images: Sequence[Tensor], n: int) -> Tensor:
        """Take parts of images, enlarged and turned at random."""
        crops: List[Tensor] = []
        for _ in range(n):
            image = images[int(self._rng.integers(len(images)))]
            side = min(int(self._fine / self._rng.uniform(1.2, 4)), *image.shape)
            top, left = (int(self._rng.integers(length - side + 1)) for length in image.shape)
            crop = torch.rot90(image[top : top + side, left : left + side], int(self._rng.integers(4)))
            size = (self._fine, self._fine)
            crops.append(functional.interpolate(crop[None, None], size, mode="bicubic", align_corners=False)[0, 0])
        return torch.stack(crops).clamp(0, 1)

    def _text(self) -> np.ndarray:
        """Draw lines of text of many sizes."""
        canvas, line = np.zeros((1024, 1024), np.uint8), 0
        letters = list("ABEHKMRSXZ0123456789abcdefgkwxyz")
        while line < len(canvas):
            height = int(self._rng.integers(10, 60))
            line += int(1.6 * height)
            words = " ".join("".join(self._rng.choice(letters, 5)) for _ in range(40))
            stroke = max(1, int(height / self._rng.uniform(5, 12)))
            cv2.putText(canvas, words, (-int(self._rng.integers(30)), line), 0, height / 30, 255, stroke, cv2.LINE_AA)
        return canvas

    def _gray(self, image: np.ndarray) -> Tensor:
        gray = image if image.ndim == 2 else cv2.cvtColor(image[..., :3], cv2.COLOR_RGB2GRAY)
        return torch.from_numpy(gray.astype(np.float32) / 255).to(self._device)

    # ---------------------------------------------------------------------------------------------------------- chance

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, device=self._device)

    def _coin(self, chance: Union[float, Tensor], *shape: int) -> Tensor:
        return (torch.rand(*shape, device=self._device) < chance).float()

    def _pick(self, values: Sequence[float], chances: Sequence[float], *shape: int) -> Tensor:
        limits = torch.tensor(np.cumsum(chances)[:-1], device=self._device, dtype=torch.float32)
        chosen = torch.bucketize(torch.rand(*shape, device=self._device), limits)
        return torch.tensor(values, device=self._device)[chosen]

    def _one_each(self, textures: Sequence[Tensor], none: float, strength: Tensor, labels: Tensor) -> Tensor:
        """Give each label one of the textures times its strength, or with a chance of `none` nothing."""
        choice = torch.randint(len(textures), strength.shape, device=self._device)
        strength = strength * (1 - self._coin(none, *strength.shape))
        return sum(_of(strength * (choice == k), labels) * texture for k, texture in enumerate(textures))


def _of(table: Tensor, labels: Tensor) -> Tensor:
    """Look up (n, size, size) labels in (n, labels) values."""
    return torch.gather(table, 1, labels.flatten(1)).view(labels.shape)
