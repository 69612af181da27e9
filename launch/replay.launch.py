"""`ros2 bag play` into the live node, on the bag's time, once the node takes frames; ends with the bag.

ros2 launch polar_pipeline replay.launch.py bag:=drive.mcap image_topic:=/arena_camera_node/images
For replay without ROS, faster than real time and frame by frame, see `polar-pipeline replay`.
"""

from pathlib import Path

from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
    TimerAction,
)
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.ros_adapters import get_ros_node

from launch import LaunchDescription
from polar_pipeline.ros import WRONG_USAGE

#: Seconds that the player waits before the first message, in which it and the node find each other.
DELAY = "2.0"
#: Seconds between two looks for the node.
PERIOD = 0.1


def player(context):
    """Wait for the node, then play; end where there will be no node to wait for."""
    bag, rate, namespace = (LaunchConfiguration(name).perform(context) for name in ("bag", "rate", "namespace"))
    is_looped, is_respawned = (IfCondition(LaunchConfiguration(name)).evaluate(context) for name in ("loop", "respawn"))
    play = ["ros2", "bag", "play", bag, "--clock", "100", "--rate", rate, "--delay", DELAY]
    play += ["--loop"] if is_looped else []
    # the last thing that a node makes, after its subscriptions
    service = "/".join(["", *filter(None, namespace.split("/")), "polar_pipeline", "snapshot"])

    def play_when_ready(context):
        if service in (name for name, _ in get_ros_node(context).get_service_names_and_types()):
            return [ExecuteProcess(cmd=play, prefix="", output="screen", on_exit=Shutdown())]
        return [TimerAction(period=PERIOD, actions=[OpaqueFunction(function=play_when_ready)])]

    def end(event, launched):
        is_node = event.process_name.startswith("polar_pipeline_node") and not launched.is_shutdown
        if is_node and (event.returncode == WRONG_USAGE or not is_respawned):
            return [Shutdown(reason="the node ended")]
        return []

    return [RegisterEventHandler(OnProcessExit(on_exit=end)), *play_when_ready(context)]


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
