"""The overview of a result, and brightness for display, against colors and gains computed by hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Dict

import numpy as np
import pytest

from polar_pipeline.options.products import PRODUCTS, level_scale
from polar_pipeline.pictures.brightness import display_gain, for_display, white_balance
from polar_pipeline.pictures.overview import MAX_SIDE, overview
from polar_pipeline.pictures.text import draw_text
from polar_pipeline.polarimetry.colormaps import AOLP_MAP, DOLP_MAP


def sample(height: int = 40, width: int = 50) -> Dict[str, np.ndarray]:
    """Flat products whose left half is 0.25 bright, half polarized at 45 degrees, and whose right half is invalid."""
    shape = (height, width)
    result = {"intensity": np.full(shape, 0.25), "dolp": np.full(shape, 0.5), "aolp": np.full(shape, np.pi / 4)}
    for name in ("dolp", "aolp"):
        result[name][:, width // 2 :] = np.nan
    result["intensity"][:, width // 2 :] = 0.125
    return {name: array.astype(np.float32) for name, array in result.items()}


def count(image: np.ndarray, color: object) -> int:
    """Number of pixels of an RGB color."""
    return int((image == np.asarray(color)).all(-1).sum())


def test_an_overview_has_every_pixel_in_its_color_and_the_legends() -> None:
    image = overview(sample(), gain=2.0)
    assert image.shape[1] == MAX_SIDE
    half = 7 * 7 * 40 * 25  # three panels of 376 pixels: factor 7
    bar = round(1.2 * 14) * 376  # pixels of a bar
    assert 0 <= count(image, DOLP_MAP[128]) - half <= 2 * bar / 256
    assert count(image, AOLP_MAP[64]) >= half
    assert 0 <= count(image, (0, 0, 0)) - 2 * half <= 2 * bar / 256, "invalid; and the dark end of the bar of intensity"
    for level in (128, 64):  # 0.25 and 0.125 of 255, times two
        assert 0 <= count(image, (level,) * 3) - half <= 2 * bar / 256 + 500, "gray pixels of text too"
    image, degrees, angles = (colors.astype(int) @ (1 << 16, 1 << 8, 1) for colors in (image, DOLP_MAP, AOLP_MAP))
    assert np.isin(degrees, image).all(), "bar"
    assert np.isin(angles, image).sum() > 200, "wheel"


def test_colored_products_stand_in_and_levels_are_the_same_picture() -> None:
    valid = {name: array[:, :20] for name, array in sample().items()}
    expected = overview(valid)
    for dtype in ("uint8", "uint16"):
        levels = {name: np.rint(array * level_scale(name, dtype)).astype(dtype) for name, array in valid.items()}
        image = overview(levels)
        rows = image.shape[0] - expected.shape[0]  # levels have one more line that says what invalid pixels are
        assert image.shape[1] == expected.shape[1]
        assert rows >= 0
        # a level of 8 bits is half a step of DoLP and of intensity
        assert np.abs(image[:500].astype(int) - expected[:500]).max() <= 4
    colored = {
        "intensity": valid["intensity"],
        "dolp_color": np.broadcast_to(DOLP_MAP[128], (40, 20, 3)),
        "aolp_color": np.broadcast_to(AOLP_MAP[64], (40, 20, 3)),
    }
    np.testing.assert_array_equal(overview(colored), expected)
    assert (overview(colored, color_style="faded") != expected).any(), "another wheel"


@pytest.mark.parametrize("shape", [(8, 8), (20, 3000), (3000, 20), (512, 612)])
@pytest.mark.parametrize("names", [("intensity",), ("dolp", "aolp"), tuple(PRODUCTS)])
def test_overviews_of_any_shape_fit(shape: tuple, names: tuple) -> None:
    rng = np.random.default_rng(1)
    sizes = {name: PRODUCTS[name].shape(shape, is_color=True, stride=2) for name in names}
    products = {
        name: rng.random(size).astype(np.float32) if PRODUCTS[name].types[0] == "float32" else np.zeros(size, np.uint8)
        for name, size in sizes.items()
    }
    image = overview(products, "name.png", 1000)
    assert image.dtype == np.uint8
    assert max(image.shape) <= 1000
    assert max(image.shape) > 900
    assert image.shape[1] >= 550, "wide enough for its text"


def test_titles() -> None:
    products = sample()
    plain, titled = overview(products), overview(products, "a b.png")
    assert titled.shape[0] > plain.shape[0]
    np.testing.assert_array_equal(overview(products, "a\x1b b\n.p\tng"), titled)
    long = overview(products, 500 * "long " + ".png")
    assert long.shape == titled.shape
    assert (long[:60, -14:] == long[0, 0]).all(), "a margin"
    assert (long[:60, -60:] != long[0, 0]).any(), "text up to the margin"


def test_threads_draw_the_same_text() -> None:
    """OpenCV 5 draws wrong letters for some of a thousand texts if threads use one font at a time."""

    def drawn(k: int) -> np.ndarray:
        image = np.zeros((40, 400, 3), np.uint8)
        draw_text(image, f"text {k % 100} abc 0.25 Degrees", (200, 20), 10 + k % 14)
        return image

    expected = [drawn(k) for k in range(700)]  # of every text in every size
    with ThreadPoolExecutor(8) as pool:
        images = pool.map(lambda k: drawn(k % 700), range(7000))
        assert all(np.array_equal(image, expected[k % 700]) for k, image in enumerate(images))


def test_results_without_the_usual_products_show_what_they_have() -> None:
    similarity = np.linspace(0.8, 1, 600, dtype=np.float32).reshape(20, 30)
    assert overview({"ssim_map": similarity, "ssim": np.float32(0.9)}).shape[1] == MAX_SIDE
    with pytest.raises(ValueError, match="needs an image, got ssim"):
        overview({"ssim": np.array(0.9)})


def test_display_gain() -> None:
    flat = np.full((60, 80), 0.25, np.float32)
    assert display_gain(flat) == pytest.approx(230 / 255 / 0.25, rel=1e-6)
    flat[0, :40] = 1.0  # under one percent of the pixels
    assert display_gain(flat) == pytest.approx(230 / 255 / 0.25, rel=1e-6)
    assert display_gain((flat * 65535).astype(np.uint16)) == pytest.approx(230 / 255 / 0.25, rel=1e-4)
    assert display_gain(np.full((60, 80), 1e-4, np.float32)) == 16, "a black frame stays dark"
    assert display_gain(np.ones((60, 80), np.float32)) == 1, "a saturated one stays white"
    assert display_gain(np.full((60, 80), np.nan, np.float32)) == 1
    color = np.full((60, 80, 3), (0.1, 0.2, 0.05), np.float32)
    assert display_gain(color) == pytest.approx(230 / 255 / 0.2, rel=1e-6)
    assert display_gain(color, (2.0, 1.0, 4.0)) == pytest.approx(230 / 255 / 0.2, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_white_balance(dtype: str) -> None:
    """Gray patches under a light of another color become gray; saturated pixels and black ones do not count."""
    patches = np.random.default_rng(0).uniform(0.05, 0.2, (60, 80, 1)) * (0.5, 1.0, 0.8)
    patches[:20], patches[20:30] = 1.0, 0.0
    image = (patches * (1 if dtype == "float32" else 65535)).astype(dtype)
    gains = white_balance(image)
    assert gains == pytest.approx((2.0, 1.0, 1.25), rel=0.01)
    shown = for_display(image[30:], 1.0, gains).astype(int)
    assert np.ptp(shown, axis=-1).max() <= 1
    np.testing.assert_allclose(shown[..., 1], 255 * patches[30:, :, 1], atol=0.51)
    assert white_balance(image[:20]) == (1.0, 1.0, 1.0)
    assert white_balance(image[..., 0]) == (1.0,)
    assert (for_display(image[:20], 16.0, gains) == 255).all()
