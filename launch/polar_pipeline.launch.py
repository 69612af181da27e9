"""The live node, optionally with LUCID's camera driver beside it.

ros2 launch polar_pipeline polar_pipeline.launch.py sensor:=IMX250MYR image_topic:=/arena_camera_node/images
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument, GroupAction, OpaqueFunction, SetEnvironmentVariable
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node, PushRosNamespace
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription
from polar_pipeline._util.paths import as_path
from polar_pipeline.live.preset import find_stray
from polar_pipeline.ros.fast_dds import transport_environment
from polar_pipeline.ros.launch_actions import live_node

CONFIG = Path(__file__).parent.parent / "config"
ARGUMENTS = {
    "namespace": ("", "Namespace of every node and topic."),
    "params_file": (str(CONFIG / "triton_mono.yaml"), "YAML file with the node's parameters."),
    "sensor": ("", "Mosaic: a sensor's name or its tile; empty takes the file's."),
    "source": ("", "Camera that the node reads itself: aravis, aravis:SERIAL or aravis:IP; empty takes image_topic."),
    "image_topic": ("image_raw", "Topic of the raw frames."),
    "camera_info_topic": ("camera_info", "Topic of the camera's calibration."),
    "use_sim_time": ("false", "Take time from /clock."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "lifecycle": ("false", "Be a managed node, which takes frames once it is configured and activated."),
    "respawn": (
        "false",
        "Start the node again when it ends by itself, as by on_device_error: stop, unless its parameters are wrong.",
    ),
    "camera": ("false", "Start LUCID's driver (package arena_camera_node) too, publishing on image_topic."),
    "pixelformat": ("mono8", "Pixel format that the driver asks of the camera: mono8, mono16, bayer_rggb8, ..."),
}


def pipeline_node(context):
    names = ("sensor", "source", "params_file")
    sensor, source, params_file = (LaunchConfiguration(name).perform(context) for name in names)
    try:
        path = as_path(params_file)
        # ROS would start a node with defaults, by a file that is not there or has parameters of other nodes only
        stray = find_stray(path, f"{context.launch_configurations.get('ros_namespace', '').rstrip('/')}/polar_pipeline")
        if stray:
            raise ValueError(stray)
    except ValueError as err:
        shipped = ", ".join(str(path) for path in sorted(CONFIG.glob("*.yaml")) if path.name != "rig.yaml")
        raise RuntimeError(f"params_file {err}; the package has {shipped}") from err
    return [
        live_node(
            context,
            "polar_pipeline_node",
            name="polar_pipeline",
            parameters=[
                str(path),
                {"use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)},
                *([{"sensor": sensor}] if sensor else []),
                *([{"camera.source": source}] if source else []),
            ],
            remappings=[
                ("image_raw", LaunchConfiguration("image_topic")),
                ("camera_info", LaunchConfiguration("camera_info_topic")),
            ],
        )
    ]


def generate_launch_description():
    camera = Node(
        package="arena_camera_node",
        executable="start",
        name="arena_camera_node",
        output="screen",
        prefix="",  # launch-prefix is for the live node
        parameters=[{"topic": LaunchConfiguration("image_topic"), "pixelformat": LaunchConfiguration("pixelformat")}],
        condition=IfCondition(LaunchConfiguration("camera")),
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            *(SetEnvironmentVariable(name, value) for name, value in transport_environment().items()),
            GroupAction(
                [PushRosNamespace(LaunchConfiguration("namespace")), camera, OpaqueFunction(function=pipeline_node)]
            ),
        ]
    )
