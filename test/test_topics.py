"""Topics: names, types and encodings are an interface, written out here once more by hand; products may be added."""

from __future__ import annotations

from polar_pipeline import topics
from polar_pipeline.products import PRODUCTS

IMAGES = {
    "intensity": ("intensity", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "angle_0": ("angles/angle_000", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "angle_45": ("angles/angle_045", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "angle_90": ("angles/angle_090", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "angle_135": ("angles/angle_135", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "unpolarized": ("polarization/unpolarized", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "polarized": ("polarization/polarized", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "polarizer": ("polarization/polarizer", ["mono8", "16UC1"], ["rgb8", "16UC3"]),
    "stokes": ("polarization/stokes", ["32FC3"], ["32FC3"]),
    "dolp": ("polarization/dolp", ["32FC1", "mono8", "16UC1"], ["32FC1", "mono8", "16UC1"]),
    "aolp": ("polarization/aolp", ["32FC1", "mono8", "16UC1"], ["32FC1", "mono8", "16UC1"]),
    "dolp_sigma": ("polarization/dolp_sigma", ["32FC1", "mono8", "16UC1"], ["32FC1", "mono8", "16UC1"]),
    "aolp_sigma": ("polarization/aolp_sigma", ["32FC1", "mono8", "16UC1"], ["32FC1", "mono8", "16UC1"]),
    "preview": ("polarization/preview", ["rgb8"], ["rgb8"]),
    "aolp_color": ("polarization/aolp_color", ["rgb8"], ["rgb8"]),
    "dolp_color": ("polarization/dolp_color", ["rgb8"], ["rgb8"]),
    "ssim_map": ("quality/ssim_map", ["32FC1", "mono8", "16UC1"], ["32FC1", "mono8", "16UC1"]),
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
    assert {name: row for name, row in found.items() if name in IMAGES} == IMAGES
    assert all(row[0] == PRODUCTS[name].topic or row[0] == f"polarization/{name}" for name, row in found.items())
    ssim = topics.PRODUCT_TOPICS["ssim"]
    assert (ssim.name, ssim.message_type, ssim.dtypes) == ("quality/ssim", "std_msgs/msg/Float32", ("float32",))


def test_output_depth_chooses_where_there_is_a_choice() -> None:
    depths = ("float32", "uint8", "uint16")
    asked = {name: tuple(row.dtype(depth) for depth in depths) for name, row in topics.PRODUCT_TOPICS.items()}
    assert asked["dolp"] == asked["aolp_sigma"] == asked["ssim_map"] == depths
    assert asked["intensity"] == asked["angle_45"] == asked["polarizer"] == ("uint8", "uint8", "uint16")
    assert asked["stokes"] == asked["ssim"] == ("float32",) * 3
    assert asked["preview"] == asked["aolp_color"] == ("uint8",) * 3


def test_other_topics() -> None:
    assert (
        topics.COMPRESSED_TOPICS.items()
        >= {
            "intensity": "intensity/compressed",
            **{
                name: f"polarization/{name}/compressed"
                for name in (
                    "unpolarized",
                    "polarized",
                    "polarizer",
                    "dolp",
                    "aolp",
                    "preview",
                    "aolp_color",
                    "dolp_color",
                )
            },
            "ssim_map": "quality/ssim_map/compressed",
        }.items()
    )
    assert topics.NUMBER_TOPICS == {"total_ms": "latency/total_ms", "saturated": "quality/saturated"}
    folders = ("angles/camera_info", "polarization/camera_info", "quality/camera_info")
    assert ("camera_info_out", *folders) == topics.CAMERA_INFO_TOPICS


def test_every_image_has_a_topic_that_image_transport_pairs() -> None:
    """It subscribes to `camera_info` in place of the last name of the image's topic, without `/compressed`."""
    second = {"intensity": ("intensity", "polarization/intensity")}
    for name, row in topics.PRODUCT_TOPICS.items():
        assert row.names == second.get(name, (row.name,))
        pairs = ["/".join([*topic.split("/")[:-1], "camera_info"]) for topic in row.names]
        assert pairs[-1] in topics.CAMERA_INFO_TOPICS
        if name in topics.COMPRESSED_TOPICS:
            assert topics.jpeg_topics(name) == tuple(f"{topic}/compressed" for topic in row.names)
            assert topics.COMPRESSED_TOPICS[name] == topics.jpeg_topics(name)[0]


def test_jpeg_formats() -> None:
    """As `compressed_image_transport` of ROS 2 writes them: with a space at the end where there is no colour."""
    grey, color = "mono8; jpeg compressed ", "rgb8; jpeg compressed bgr8"
    found = {
        name: tuple(topics.jpeg_format(name, color) for color in (False, True)) for name in topics.COMPRESSED_TOPICS
    }
    light, values, colors = ("unpolarized", "polarized", "polarizer"), ("dolp", "aolp"), ("aolp_color", "dolp_color")
    assert (
        found.items()
        >= {
            **dict.fromkeys(("intensity", *light), (grey, color)),
            **dict.fromkeys((*values, "ssim_map"), (grey, grey)),
            **dict.fromkeys(("preview", *colors), (color, color)),
        }.items()
    )
