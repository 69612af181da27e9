"""Trains the network of `demosaic: learned`, and writes the file of its weights.

    python training/train.py  # about 7 minutes on a data-center GPU; needs PyTorch and scikit-image

Scenes are drawn (`scenes.py`), recorded with noise, demosaiced and denoised by this package on the CPU. The network
learns what to add to that. It is rewarded for each decibel, and punished several times as much where the result is
worse than the better of the demosaiced and the denoised image of the same scene. Scenes are recorded in pairs of frames
that differ by noise alone: from their difference the network learns how much noise it leaves. At the end, what it
states is fitted to the noise of DoLP and AoLP. The same seed gives the same scenes, and weights that differ only by
the rounding of the GPU.
"""

from __future__ import annotations

import argparse
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Tuple

import numpy as np
import torch
from scenes import KINDS, Painter
from torch import Tensor, nn
from torch.nn import functional

from polar_pipeline import Pipeline
from polar_pipeline.backends import network
from polar_pipeline.backends.reference.noise import plane_gains
from polar_pipeline.polarimetry.coefficients import LEARNED_CLIP, LEARNED_FADE, LEARNED_LIMIT, LEARNED_REACH
from polar_pipeline.sensor.forward import digitize
from polar_pipeline.sensor.mosaic import ANGLES, SENSORS

SENSOR = SENSORS["IMX250MZR"]
GAINS = plane_gains(SENSOR, False, True, "adaptive", "weighted")
#: From the variance of raw pixels to that of S0 by ADR, and to those of S1 and S2.
S0_GAIN, GAIN = float(GAINS.s0[0, 0]), float(GAINS.polarization[0])
#: Side of scenes in pixels, scenes, and pairs of frames of each.
SIZE, SCENES, PAIRS = 384, 2400, 2
#: Of each ten groups of scenes.
MIX = ("natural", "even", "natural", "polarized", "natural", "polarized", "natural", "charts", "natural", "polarized")
#: Frames in a step, parts of each, side of a part in superpixels, and superpixels of its border that do not count.
GROUPS, PARTS, SIDE, BORDER = 24, 10, 48, 2
#: Steps; the first of them with rising rates; and the highest rate. Then steps that fit the noise.
STEPS, WARM_UP, RATE, NOISE_STEPS = 30_000, 300, 3e-3, 2500
#: Share of S0, S1 and S2 in the loss, and how much a decibel lost weighs over one that is gained.
WEIGHTS, HARM = (0.3, 1.0, 1.0), 4.0
#: Weight of the stated noise in the loss, and the largest square that counts there, over the variance of a raw pixel.
NOISE_WEIGHT, MOST_NOISE = 2.0, 8.0
#: In the fit of the noise, weight of a DoLP of 1 over that of one of 0, less 1.
DOLP_WEIGHT = 6
#: Mean square error, as a share of full scale, below which nothing is gained.
LEAST_ERROR = 1e-7


class Frames(NamedTuple):
    """Frames for training, on the GPU, in pairs that differ by noise alone; lengths of images are in superpixels.

    Attributes:
        features: (n, 29, h, w) float16: the network's input.
        deviation: (n, 1, h, w) float16: standard deviation of a raw pixel by noise, over the exposure.
        fade: (n, 1, h, w) float16: how much of the answer counts.
        errors: (n, 2, 12, h, w) float16: what ADR's S0, S1 and S2 are off, over the exposure, and the denoised ones.
        truth: (n, 12, h, w) float16: the true ones.
    """

    features: Tensor
    deviation: Tensor
    fade: Tensor
    errors: Tensor
    truth: Tensor


class Network(nn.Module):
    """The network of `backends/reference/learned.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(
            {
                name: nn.Conv2d(layer.inputs, layer.outputs, layer.size, layer.stride, padding=int(layer.size == 3))
                for name, layer in network.LAYERS.items()
            }
        )
        for layer in self.layers.values():
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.layers["leave"].weight, std=1e-3)  # begins with what was denoised

    def forward(self, features: Tensor) -> Tensor:
        """Return the changes of S0, S1 and S2, in units of the noise, before they are limited; and the noise left."""

        def apply(image: Tensor, *names: str) -> Tensor:
            for name in names:
                image = functional.relu(self.layers[name](image))
            return image

        def doubled(image: Tensor, name: str) -> Tensor:
            return functional.pixel_shuffle(self.layers[name](image), 2)

        fine = apply(features, "enter", "encode_0")
        middle = apply(fine, "down_1", "encode_1")
        coarse = apply(middle, "down_2", "encode_2")
        middle = apply(functional.relu(middle + doubled(coarse, "up_1")), "decode_1")
        fine = apply(functional.relu(fine + doubled(middle, "up_0")), "decode_0")
        answer: Tensor = self.layers["leave"](fine)
        return answer


# ------------------------------------------------------------------------------------------------------------- frames


class Recorder:
    """Records scenes and demosaics them by this package."""

    _NAMES = tuple(f"angle_{angle}" for angle in ANGLES)

    def __init__(self) -> None:
        self._local = threading.local()

    def __call__(self, scene: np.ndarray, seed: int) -> Tuple[np.ndarray, ...]:
        """Record a scene twice, changed at random.

        Returns:
            Of both frames: the true angle images, those by ADR and denoised, all over the exposure; the exposure, and
            the variance of a raw pixel by noise at the light of 0, and how it rises with the light.
        """
        rng = np.random.default_rng(seed)
        truth = _changed(scene, rng)
        exposure, bits = 0.012 ** (rng.random() ** 1.5), int(rng.choice((8, 10, 12, 12)))
        gain = int(rng.integers(-6, 13))
        believed = gain + (int(rng.integers(-7, 8)) if rng.random() < 0.25 else 0)  # the noise is off by 0.7 to 1.5
        light = np.empty(truth.shape[1:])
        for row, angles in enumerate(SENSOR.angles):
            for column, angle in enumerate(angles):
                light[row::2, column::2] = exposure * truth[ANGLES.index(angle), row::2, column::2]
        full_well = SENSOR.full_well / 10 ** (gain / 20)
        raw = np.stack([digitize(light, bits, full_well, SENSOR.read_noise, rng) for _ in range(2)])
        measured, denoised = (
            np.stack([result[name] for name in self._NAMES], 1) / np.float32(exposure)
            for result in (self._pipeline(bits, denoise="off")(raw), self._pipeline(bits, camera_gain=believed)(raw))
        )
        electrons = SENSOR.full_well / 10 ** (believed / 20)
        floor = (SENSOR.read_noise / electrons) ** 2 + 1 / (12 * ((1 << bits) - 1) ** 2)
        numbers = np.array([exposure, floor, 1 / electrons], np.float32)
        return np.stack([truth.astype(np.float32)] * 2), measured, denoised, np.stack([numbers] * 2)

    def _pipeline(self, bits: int, denoise: str = "on", camera_gain: float = 0.0) -> Pipeline:
        """Return the thread's pipeline with these options."""
        made: Dict[object, Pipeline] = self._local.__dict__.setdefault("made", {})
        key = (bits, denoise, camera_gain)
        if key not in made:
            options = {"bit_depth": bits, "denoise": denoise, "camera_gain": camera_gain}
            made[key] = Pipeline(
                SENSOR, self._NAMES, resolution="full", demosaic="adaptive", backend="cpu", threads=1, **options
            )
        return made[key]


def _changed(scene: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Turn (4, H, W) angle images, and give them the faults of real ones: gains, shifts and noise of their own."""
    turns = int(rng.integers(4))
    angles = np.rot90(scene, turns, (1, 2)).astype(np.float64)
    angles = np.roll(angles, 2 * (turns % 2), 0)  # a quarter turn exchanges 0 and 90, and 45 and 135
    if rng.random() < 0.5:
        angles = angles[[0, 3, 2, 1]]  # S2 of the other sign, as where the mosaic is mirrored
    if rng.random() < 0.6:
        spread = 0.08 if rng.random() < 0.2 else 0.015
        angles = angles * (1 + spread * rng.standard_normal((4, 1, 1)))
    if rng.random() < 0.3:
        shift = 0.5 * rng.random((4, 1, 1))
        angles = angles + shift * (np.roll(angles, 1, int(rng.integers(1, 3))) - angles)
    if rng.random() < 0.5:
        deviation = rng.uniform(0, 0.004) * np.sqrt(0.7 * np.clip(angles, 0, 1) + 0.15)
        angles = angles + deviation * rng.standard_normal(angles.shape)
    return np.clip(angles, 0, 1)


def make_frames(device: torch.device, scenes: int, pairs: int, size: int, seed: int) -> Frames:
    """Draw and record scenes."""
    painter, recorder = Painter(size, device, seed), Recorder()
    found = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first in range(0, scenes, 16):
            drawn = painter.scenes(16, KINDS[MIX[first // 16 % len(MIX)]]).cpu().numpy()
            seeds = range(seed + first * pairs, seed + (first + 16) * pairs)
            made = list(pool.map(recorder, np.repeat(drawn, pairs, 0), seeds))
            found.append(prepare(*(torch.from_numpy(np.concatenate(each)).to(device) for each in zip(*made))))
    return Frames(*(torch.cat(each) for each in zip(*found)))


def prepare(truth: Tensor, measured: Tensor, denoised: Tensor, noise: Tensor) -> Frames:
    """Compute what the network sees of frames; `reference/learned.py` defines it. Arguments are those of `Recorder`."""
    exposure, floor, shot = noise[:, :, None, None, None].unbind(1)
    before, after, true = (_planes(angles) for angles in (measured, denoised, truth))
    own = functional.avg_pool2d(after * exposure, 2)
    reach = LEARNED_REACH
    around = functional.avg_pool2d(functional.pad(own, [reach] * 4, "reflect"), 2 * reach + 1, 1)
    deviation = (floor + shot * own[:, :1].clamp_min(0) / 2).sqrt()
    parts = functional.pixel_unshuffle
    channels = [
        parts(planes[:, k : k + 1] * exposure, 2) - around[:, k : k + 1]
        for k in range(4)
        for planes in (before, after)[: 1 if k == 3 else 2]
    ]
    contrast = (torch.cat(channels, 1) / deviation).clamp(-LEARNED_CLIP, LEARNED_CLIP) / 4
    level = (own[:, :1] / deviation / 16).clamp(0, 16)
    low, high = LEARNED_FADE
    fade = ((GAIN**0.5 * deviation / own[:, :1].clamp_min(1e-30) - low) / (high - low)).clamp(0, 1)
    errors = torch.stack([parts(planes[:, :3] - true[:, :3], 2) for planes in (before, after)], 1)
    tensors = (torch.cat([contrast, level], 1), deviation / exposure, fade, errors, parts(true[:, :3], 2))
    return Frames(*(each.half() for each in tensors))


def _planes(angles: Tensor) -> Tensor:
    """Convert (n, 4, H, W) angle images to S0, S1, S2 and (I0 + I90 - I45 - I135)/2."""
    i0, i45, i90, i135 = angles.unbind(1)
    return torch.stack([(i0 + i45 + i90 + i135) / 2, i0 - i90, i45 - i135, (i0 + i90 - i45 - i135) / 2], 1)


# ----------------------------------------------------------------------------------------------------------- training


def parts_of(frames: Frames, groups: int, parts: int, side: int) -> Iterator[Frames]:
    """Take parts of the frames of random pairs without end, the same of both: `parts` of a frame, then of the other."""
    count, _, height, width = frames.features.shape
    device = frames.features.device
    places, chance = torch.arange(side, device=device), torch.Generator(device).manual_seed(0)
    while True:
        pairs = torch.randint(count // 2, (groups // 2, 1, 1), device=device, generator=chance)
        frame = (2 * pairs + torch.arange(2, device=device)[:, None]).expand(-1, -1, parts).reshape(-1, 1, 1)
        shape = (groups // 2, 1, parts)
        top, left = (
            torch.randint(length - side + 1, shape, device=device, generator=chance).expand(-1, 2, -1).reshape(-1, 1, 1)
            for length in (height, width)
        )
        rows, columns = top + places[:, None], left + places
        tensors = [
            each.flatten(1, -3)[frame, :, rows, columns].permute(0, 3, 1, 2).float().unflatten(1, each.shape[1:-2])
            for each in frames
        ]
        yield Frames(*tensors)


def decibels(errors: Tensor, groups: int) -> Tensor:
    """Convert (n, 12, h, w) errors to (groups, 3): natural logarithms of the mean square errors of S0, S1 and S2."""
    inner = errors[..., BORDER:-BORDER, BORDER:-BORDER]
    squares = inner.square().unflatten(1, (3, 4)).mean((2, 3, 4))
    return torch.log(squares.unflatten(0, (groups, -1)).mean(1) + LEAST_ERROR)


def apply(model: Network, part: Frames) -> Tuple[Tensor, Tensor]:
    """Return (n, 12, h, w) errors of corrected frames, and (n, 4, h, w) numbers of `stated_covariance`."""
    with torch.autocast(part.features.device.type, torch.bfloat16, enabled=part.features.is_cuda):
        answer = model(part.features.contiguous(memory_format=torch.channels_last))
    change, noise = torch.tanh(answer.float() / LEARNED_LIMIT).split((12, 4), 1)
    noise = torch.cat([(1 + noise[:, :2]).clamp_min(1e-4), noise[:, 2:]], 1)
    return part.errors[:, 1] + LEARNED_LIMIT * change * part.deviation * part.fade, noise


class Pairs(NamedTuple):
    """What the frames of pairs differ by, and the noise that the network states; lengths as in `Frames`.

    Attributes:
        differences: Of S0, S1 and S2, over the root of 2 and the deviation of a raw pixel: (pairs, 1, parts, 4, h, w).
        light: Stated variance of S0, over that of a raw pixel: (pairs, 2, parts, 1, h, w).
        rest: Stated variance of what S1 and S2 do not share with S0.
        slopes: Of S1 and S2, how much of the noise of S0 they share.
    """

    differences: Tuple[Tensor, ...]
    light: Tensor
    rest: Tensor
    slopes: Tuple[Tensor, Tensor]


def pairs_of(errors: Tensor, noise: Tensor, part: Frames, parts: int) -> Pairs:
    """Compare the frames of pairs. Arguments but the last two are those that `apply` returns."""
    frames = errors.detach().unflatten(0, (-1, 2, parts)).unflatten(3, (3, 4))
    deviation = part.deviation.unflatten(0, (-1, 2, parts)).mean(1, keepdim=True)[:, :, :, None]
    differences = ((frames[:, :1] - frames[:, 1:]) / (2**0.5 * deviation)).unbind(3)
    light, rest, *slopes = noise.unflatten(0, (-1, 2, parts))[..., None, :, :].unbind(3)
    return Pairs(differences, S0_GAIN * light, GAIN * rest, (slopes[0], slopes[1]))


def surprise(square: Tensor, variance: Tensor) -> Tensor:
    """Return how unlikely a variance makes squares, without the border: least if it is their mean."""
    unlikely = square.clamp_max(MOST_NOISE) / variance + torch.log(variance)
    return unlikely[..., BORDER:-BORDER, BORDER:-BORDER]


def noise_loss(of: Pairs) -> Tensor:
    """Return how unlikely the stated covariances of S0, S1 and S2 make the differences."""
    s0, s1, s2 = of.differences
    own = ((s1 - of.slopes[0] * s0).square() + (s2 - of.slopes[1] * s0).square()) / 2
    return (surprise(s0.square(), of.light) + 2 * surprise(own, of.rest)).mean() / 3


def sigma_loss(of: Pairs, part: Frames, parts: int) -> Tensor:
    """Return how unlikely the stated variances make the differences of DoLP and AoLP; high DoLP weighs more."""
    truth = part.truth.unflatten(0, (-1, 2, parts))[:, :1].unflatten(3, (3, 4))
    s0, s1, s2 = truth.unbind(3)
    length = torch.hypot(s1, s2).clamp_min(1e-6)
    x, y, degree = s1 / length, s2 / length, length / s0.clamp_min(1e-4)
    along = x * of.differences[1] + y * of.differences[2] - degree * of.differences[0]
    across = x * of.differences[2] - y * of.differences[1]
    of_along = of.rest + (x * of.slopes[0] + y * of.slopes[1] - degree).square() * of.light
    of_across = of.rest + (x * of.slopes[1] - y * of.slopes[0]).square() * of.light
    weight = (1 + DOLP_WEIGHT * degree.square())[..., BORDER:-BORDER, BORDER:-BORDER]
    return (weight * (surprise(along.square(), of_along) + surprise(across.square(), of_across))).mean()


def train(frames: Frames, steps: int, groups: int, parts: int, side: int) -> Network:
    """Train a network, and return the running mean of its weights."""
    device = frames.features.device
    torch.manual_seed(0)
    model, mean = (Network().to(device, memory_format=torch.channels_last) for _ in range(2))
    mean.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-4, betas=(0.9, 0.99))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
    )
    weights = torch.tensor(WEIGHTS, device=device)
    start = time.time()
    for step, part in zip(range(steps), parts_of(frames, groups, parts, side)):
        best = torch.minimum(*(decibels(part.errors[:, k], groups) for k in range(2)))
        errors, noise = apply(model, part)
        gained = decibels(errors, groups) - best
        of_noise = noise_loss(pairs_of(errors, noise, part, parts))
        loss = ((gained + HARM * functional.relu(gained + 0.01)) * weights).sum(1).mean() + NOISE_WEIGHT * of_noise
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        rate.step()
        with torch.no_grad():
            for ours, theirs in zip(mean.parameters(), model.parameters()):
                ours.lerp_(theirs, 1 - min(0.999, (step + 1) / (step + 20)))
        if step % 500 == 0:
            of_each = (-10 / math.log(10) * gained.mean(0)).tolist()
            print(f"step {step}, {time.time() - start:.0f} s: noise {of_noise:.3f}, S0, S1, S2 better by", end=" ")
            print(", ".join(f"{value:.2f}" for value in of_each), "dB", flush=True)
    return mean


def fit_noise(model: Network, frames: Frames, steps: int, groups: int, parts: int, side: int) -> None:
    """Fit what the last layer states of the noise to that of DoLP and AoLP; nothing else changes."""
    optimizer = torch.optim.Adam(model.layers["leave"].parameters(), lr=RATE)  # changes have no part in the loss
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _, part in zip(range(steps), parts_of(frames, groups, parts, side)):
        loss = sigma_loss(pairs_of(*apply(model, part), part, parts), part, parts)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rate.step()


def save(model: Network, path: Path) -> None:
    """Write the weights as `network.weights` reads them."""
    arrays = {}
    for name, layer in model.layers.items():
        arrays[name], arrays[f"{name}_bias"] = (
            value.detach().cpu().contiguous().numpy().astype(np.float16) for value in (layer.weight, layer.bias)
        )
    np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(network.__file__).with_suffix(".npz"))
    parser.add_argument("--scenes", type=int, default=SCENES)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    start = time.time()
    frames = make_frames(device, given.scenes, PAIRS, given.size, given.seed)
    print(f"{len(frames.features)} frames in {time.time() - start:.0f} s", flush=True)
    side = min(SIDE, given.size // 2)
    model = train(frames, given.steps, GROUPS, PARTS, side)
    fit_noise(model, frames, min(given.steps, NOISE_STEPS), GROUPS, PARTS, side)
    save(model, given.output)
    print(f"{sum(value.numel() for value in model.parameters())} weights in {given.output}")


if __name__ == "__main__":
    main()
