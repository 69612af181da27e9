"""The live node with a camera of its own, which needs no driver.

ros2 launch polar_pipeline camera.launch.py source:=aravis:SERIAL
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from launch import LaunchDescription

LAUNCH = Path(__file__).parent
#: Arguments with other defaults than those of `polar_pipeline.launch.py`, which declares all others.
DEFAULTS = {
    "source": ("aravis", "Camera: aravis for the first polarization camera, aravis:SERIAL or aravis:IP."),
    "params_file": (str(LAUNCH.parent / "config" / "camera.yaml"), "YAML file with the node's parameters."),
}


def generate_launch_description():
    node = PythonLaunchDescriptionSource(str(LAUNCH / "polar_pipeline.launch.py"))
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in DEFAULTS.items()
            ),
            IncludeLaunchDescription(node),
        ]
    )
