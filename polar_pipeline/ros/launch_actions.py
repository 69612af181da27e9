"""Launch actions that the launch files share: starting a node of this package, and handling its exit."""

from __future__ import annotations

from typing import Any, List, Sequence

from launch.actions import EmitEvent, LogInfo  # type: ignore[import-not-found,import-untyped,unused-ignore]
from launch.conditions import IfCondition  # type: ignore[import-not-found,import-untyped,unused-ignore]
from launch.events import matches_action  # type: ignore[import-not-found,import-untyped,unused-ignore]
from launch.events.process import ShutdownProcess  # type: ignore[import-not-found,import-untyped,unused-ignore]
from launch.substitutions import LaunchConfiguration  # type: ignore[import-not-found,import-untyped,unused-ignore]
from launch_ros.actions import Node  # type: ignore[import-not-found,import-untyped,unused-ignore]

from polar_pipeline.ros import WRONG_USAGE

#: Seconds from the end of a node until it is started again. Not 0: launch would not wait for `_after_end` then.
RESPAWN_DELAY = 1.0


def live_node(context: Any, executable: str, words: Sequence[str] = (), **arguments: Any) -> Any:
    """Create the action that starts a node, by the launch arguments `log_level`, `respawn` and `lifecycle`.

    `words` is the command line; keyword arguments are passed to `launch_ros.actions.Node`.
    """
    is_respawned, is_managed = (
        IfCondition(LaunchConfiguration(name)).evaluate(context) for name in ("respawn", "lifecycle")
    )
    return Node(
        package="polar_pipeline",
        executable=executable,
        arguments=[*words, *(["--lifecycle"] if is_managed else [])],
        output="screen",
        ros_arguments=["--log-level", LaunchConfiguration("log_level")],
        respawn=is_respawned,
        respawn_delay=RESPAWN_DELAY,
        on_exit=_after_end if is_respawned else None,
        **arguments,
    )


def _after_end(event: Any, _: Any) -> List[Any]:
    """Prevent the respawn of a process with wrong parameters or arguments: it would only exit again."""
    if event.returncode != WRONG_USAGE:
        return []
    return [
        LogInfo(msg=f"{event.process_name} is not started again: its parameters or arguments are wrong"),
        EmitEvent(event=ShutdownProcess(process_matcher=matches_action(event.action))),
    ]
