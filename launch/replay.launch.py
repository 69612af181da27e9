"""`ros2 bag play` into the live node, on the bag's time, once the node takes frames; ends with the bag.

ros2 launch polar_pipeline replay.launch.py bag:=drive.mcap image_topic:=/arena_camera_node/images
For replay without ROS, faster than real time and frame by frame, see `polar-pipeline replay`.
"""

import sys
from pathlib import Path

from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
)
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription
from polar_pipeline.ros import WRONG_USAGE

#: Seconds that the player waits before the first message, in which it and the node find each other.
DELAY = "2.0"


def player(context):
    """Wait for the node, then play; end where there will be no node to wait for."""
    bag, rate, namespace = (LaunchConfiguration(name).perform(context) for name in ("bag", "rate", "namespace"))
    is_looped, is_respawned = (IfCondition(LaunchConfiguration(name)).evaluate(context) for name in ("loop", "respawn"))
    play = ["ros2", "bag", "play", bag, "--clock", "100", "--rate", rate, "--delay", DELAY]
    play += ["--loop"] if is_looped else []

    def start(event, launched):
        if launched.is_shutdown:
            return []
        if event.returncode != 0:
            return [Shutdown(reason="nothing waits for the node any more")]
        return [ExecuteProcess(cmd=play, prefix="", output="screen", on_exit=Shutdown())]

    def end(event, launched):
        is_node = event.process_name.startswith("polar_pipeline_node") and not launched.is_shutdown
        if is_node and (event.returncode == WRONG_USAGE or not is_respawned):
            return [Shutdown(reason="the node ended")]
        return []

    ready = [sys.executable, "-m", "polar_pipeline.ros.ready", f"{namespace}/polar_pipeline"]
    return [
        RegisterEventHandler(OnProcessExit(on_exit=end)),
        ExecuteProcess(cmd=ready, name="ready", prefix="", output="screen", on_exit=start),
    ]


def generate_launch_description():
    node = PythonLaunchDescriptionSource(str(Path(__file__).parent / "polar_pipeline.launch.py"))
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "bag", description="The bag to play, with raw images (compressed ones: polar-pipeline play)."
            ),
            DeclareLaunchArgument("rate", default_value="1.0", description="Speed of the playback."),
            DeclareLaunchArgument("loop", default_value="false", description="Start again at the end of the bag."),
            IncludeLaunchDescription(node, launch_arguments={"use_sim_time": "true"}.items()),
            OpaqueFunction(function=player),
        ]
    )
