"""Topics: names, types and encodings are an interface, written out here once more by hand."""

from __future__ import annotations

from polar_pipeline import topics
from polar_pipeline.products import PRODUCTS

IMAGES = {
    "intensity": ("intensity", ["mono8"], ["rgb8"]),
    "angle_0": ("angles/angle_000", ["mono8"], ["rgb8"]),
    "angle_45": ("angles/angle_045", ["mono8"], ["rgb8"]),
    "angle_90": ("angles/angle_090", ["mono8"], ["rgb8"]),
    "angle_135": ("angles/angle_135", ["mono8"], ["rgb8"]),
    "stokes": ("polarization/stokes", ["32FC3"], ["32FC3"]),
    "dolp": ("polarization/dolp", ["32FC1", "mono8"], ["32FC1", "mono8"]),
    "aolp": ("polarization/aolp", ["32FC1", "mono8"], ["32FC1", "mono8"]),
    "dolp_sigma": ("polarization/dolp_sigma", ["32FC1", "mono8"], ["32FC1", "mono8"]),
    "aolp_sigma": ("polarization/aolp_sigma", ["32FC1", "mono8"], ["32FC1", "mono8"]),
    "preview": ("polarization/preview", ["rgb8"], ["rgb8"]),
    "ssim_map": ("quality/ssim_map", ["32FC1", "mono8"], ["32FC1", "mono8"]),
}


def test_products() -> None:
    assert list(topics.PRODUCT_TOPICS) == list(PRODUCTS)
    found = {
        name: (
            row.name,
            *([topics.image_encoding(name, dtype, color) for dtype in row.dtypes] for color in (False, True)),
        )
        for name, row in topics.PRODUCT_TOPICS.items()
        if row.message_type == "sensor_msgs/msg/Image"
    }
    assert found == IMAGES
    ssim = topics.PRODUCT_TOPICS["ssim"]
    assert (ssim.name, ssim.message_type, ssim.dtypes) == ("quality/ssim", "std_msgs/msg/Float32", ("float32",))


def test_output_depth_chooses_where_there_is_a_choice() -> None:
    asked = {name: [row.dtype(depth) for depth in ("float32", "uint8")] for name, row in topics.PRODUCT_TOPICS.items()}
    assert asked["dolp"] == ["float32", "uint8"]
    assert asked["intensity"] == ["uint8", "uint8"]
    assert asked["stokes"] == ["float32", "float32"]


def test_other_topics() -> None:
    assert topics.COMPRESSED_TOPICS == {
        "intensity": "intensity/compressed",
        "preview": "polarization/preview/compressed",
    }
    folders = ("angles/camera_info", "polarization/camera_info", "quality/camera_info")
    assert ("camera_info_out", *folders) == topics.CAMERA_INFO_TOPICS
