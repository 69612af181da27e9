"""A live node for every camera of a rig, in one process or in one each, as a YAML file says.

ros2 launch polar_pipeline rig.launch.py rig:=rig.yaml
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchDescription
from polar_pipeline.ros.fast_dds import transport_environment
from polar_pipeline.ros.launch_actions import live_node
from polar_pipeline.ros.rig import read_rig

ARGUMENTS = {
    "rig": (str(Path(__file__).parent.parent / "config" / "rig.yaml"), "YAML file with the cameras."),
    "namespace": ("", "In front of the cameras' own namespaces."),
    "use_sim_time": ("false", "Take time from /clock."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "lifecycle": ("false", "Be managed nodes, each of which takes frames once it is configured and activated."),
    "respawn": (
        "false",
        "Start a node again when it ends by itself, as by on_device_error: stop, unless its parameters are wrong.",
    ),
}


def nodes(context):
    path, namespace = (LaunchConfiguration(name).perform(context) for name in ("rig", "namespace"))
    rig = read_rig(path, namespace)
    clock = {"use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)}
    if rig.processes == "one":
        words = [path, "--namespace", namespace]
        return [live_node(context, "polar_pipeline_rig", words, parameters=[clock])]
    return [
        live_node(
            context,
            "polar_pipeline_node",
            name=camera.name,
            namespace=camera.namespace,
            parameters=[clock, *filter(None, [camera.params_file, dict(camera.parameters)])],
            remappings=camera.remappings,
        )
        for camera in rig.cameras
    ]


def generate_launch_description():
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            *(SetEnvironmentVariable(name, value) for name, value in transport_environment().items()),
            OpaqueFunction(function=nodes),
        ]
    )
