"""`ros2 bag play` into the live node, on the bag's time, once the node takes frames; ends with the bag.

ros2 launch polar_pipeline replay.launch.py bag:=drive.mcap image_topic:=/arena_camera_node/images compare:=golden.mcap
The exit code is 0 only if every raw image of the bag came out of the node and, with compare:=, the images are equal to
the golden recording's. For replay without ROS, faster than real time and frame by frame, see `polar-pipeline replay`.
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


def live_check(context):
    """Start the process that plays and checks; launch fails if it does, or if the node ends before."""
    names = ("bag", "rate", "namespace", "image_topic", "compare")
    bag, rate, namespace, image_topic, golden = (LaunchConfiguration(name).perform(context) for name in names)
    is_looped, is_respawned = (IfCondition(LaunchConfiguration(name)).evaluate(context) for name in ("loop", "respawn"))
    if golden and is_looped:
        raise RuntimeError("loop:=true plays until Ctrl-C, so that compare:= would never be judged")
    namespace = "".join(f"/{part}" for part in namespace.split("/") if part)
    topic = image_topic if image_topic.startswith("/") else f"{namespace}/{image_topic}"
    words = [bag, "--rate", rate, f"--namespace={namespace}", "--image-topic", topic]
    words += ["--loop"] if is_looped else []
    words += ["--compare", golden] if golden else []

    def judge(event, launched):
        if event.returncode and not launched.is_shutdown:
            raise RuntimeError(f"the replay failed with exit code {event.returncode}: its lines above say why")
        return [Shutdown(reason="the replay ended")]

    def end(event, launched):
        is_node = event.process_name.startswith("polar_pipeline_node") and not launched.is_shutdown
        if is_node and (event.returncode == WRONG_USAGE or not is_respawned):
            raise RuntimeError("the node ended before the replay")
        return []

    command = [sys.executable, "-u", "-m", "polar_pipeline.tools.play.live_check", *words]
    return [
        RegisterEventHandler(OnProcessExit(on_exit=end)),
        ExecuteProcess(cmd=command, name="replay", prefix="", output="screen", on_exit=judge),
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
            DeclareLaunchArgument(
                "compare",
                default_value="",
                description="Golden recording that the node's images must equal, as polar-pipeline replay writes it.",
            ),
            IncludeLaunchDescription(node, launch_arguments={"use_sim_time": "true"}.items()),
            OpaqueFunction(function=live_check),
        ]
    )
