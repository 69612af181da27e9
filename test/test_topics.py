"""Topics as other packages look for them: calibrations beside images, and the formats of JPEG images."""

from __future__ import annotations

from polar_pipeline import topics


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
