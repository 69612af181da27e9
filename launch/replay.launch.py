"""`ros2 bag play` into the live node, on the bag's time; ends with the bag.

ros2 launch polar_pipeline replay.launch.py bag:=drive.mcap image_topic:=/arena_camera_node/images
For replay without ROS, faster than real time and frame by frame, see `polar-pipeline replay`.
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument, ExecuteProcess, IncludeLaunchDescription, Shutdown
from launch.conditions import IfCondition, UnlessCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription


def generate_launch_description():
    play = ["ros2", "bag", "play", LaunchConfiguration("bag"), "--clock", "100", "--rate", LaunchConfiguration("rate")]
    loop = LaunchConfiguration("loop")
    node = PythonLaunchDescriptionSource(str(Path(__file__).parent / "polar_pipeline.launch.py"))
    return LaunchDescription(
        [
            DeclareLaunchArgument("bag", description="The bag to play."),
            DeclareLaunchArgument("rate", default_value="1.0", description="Speed of the playback."),
            DeclareLaunchArgument("loop", default_value="false", description="Start again at the end of the bag."),
            IncludeLaunchDescription(node, launch_arguments={"use_sim_time": "true"}.items()),
            ExecuteProcess(cmd=play, output="screen", on_exit=Shutdown(), condition=UnlessCondition(loop)),
            ExecuteProcess(cmd=[*play, "--loop"], output="screen", on_exit=Shutdown(), condition=IfCondition(loop)),
        ]
    )
