"""Program of the live node and of a rig: arguments, start, main loop, exit codes."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Type

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.logging import get_logger
from rclpy.parameter import Parameter as RosParameter
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier, remove_ros_args

from polar_pipeline._util.imports import importing
from polar_pipeline._util.malloc import keep_freed_memory
from polar_pipeline._util.stop_flag import StopFlag
from polar_pipeline._util.text import SHOWN_REASON, printable, printable_lines
from polar_pipeline.live.rig import RigSync
from polar_pipeline.ros import FAILED, WRONG_USAGE
from polar_pipeline.ros.fast_dds import named_profiles, shared_memory_problem
from polar_pipeline.ros.node import START_ERRORS, LiveNode, PolarNode
from polar_pipeline.ros.rig import Camera, Rig, read_rig

try:
    from rclpy.experimental import EventsExecutor  # is notified of what is ready: half a millisecond a frame less
except ImportError:  # before Jazzy
    EventsExecutor = SingleThreadedExecutor

#: Seconds between two looks at the stop flag: Python runs a signal's handler only between two waits.
STOP_PERIOD = 0.1
#: Seconds for which a busy thread of Python keeps the interpreter's lock from threads that wait for it. Python's own
#: 5 ms would be spent at nearly every step of a frame while the executor's thread checks changes of parameters.
SWITCH_INTERVAL = 0.0005
#: Errors of rclpy for invalid ROS arguments: classes, which are not public, and the text of `RuntimeError`.
_ARGUMENT_ERRORS = ("RCLInvalidROSArgsError", "UnknownROSArgsError")
_ARGUMENT_TEXT = "failed to initialize rcl:"


class _RosHandler(logging.Handler):
    """Handler that forwards log records of the package to the log of ROS."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; rclpy wants a line of code for each level."""
        if record.levelno < logging.WARNING:
            get_logger("polar_pipeline").info(printable(record.getMessage(), SHOWN_REASON))
        else:
            get_logger("polar_pipeline").warning(printable(record.getMessage(), SHOWN_REASON))


_ROS_HANDLER = _RosHandler()


def run(
    args: Optional[List[str]],
    stop: StopFlag,
    rig: Optional[Rig] = None,
    node_class: Type[LiveNode] = PolarNode,
) -> int:
    """Run a node for each camera of a rig, or one by the command line, in one executor until `stop` is set.

    Returns:
        Exit code: 0, `FAILED` if a node could not start or had to end, `WRONG_USAGE` if its parameters or arguments are
        wrong.
    """
    keep_freed_memory()  # for incoming messages
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        # rclpy's own handlers would raise wherever the main thread happens to be
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as err:  # wrong ROS arguments, or no place for logs
        return _refused(err)
    package = logging.getLogger("polar_pipeline")
    package.addHandler(_ROS_HANDLER)
    package.setLevel(logging.INFO)
    lacking = shared_memory_problem() if named_profiles() and "fastrtps" in get_rmw_implementation_identifier() else ""
    if lacking:  # Fast DDS's own lines do not say that frames will get lost
        get_logger("polar_pipeline").warning(f"too little shared memory, so that frames get lost: {lacking}")
    # the events executor crashes if a subscription with pending messages is destroyed, as by a deactivation
    executor = EventsExecutor() if node_class is PolarNode else SingleThreadedExecutor()
    nodes: List[LiveNode] = []
    try:
        sync = RigSync(rig.sync) if rig and rig.sync else None
        for camera in rig.cameras if rig else (None,):
            if stop.is_set():
                break
            try:
                nodes.append(node_class(args, rig=sync, **_node_arguments(camera)))
            except START_ERRORS as err:
                if stop.is_set():  # it was asked to end while it compiled
                    break
                who = f"{camera.full_name} " if camera else ""
                get_logger("polar_pipeline").fatal(printable(f"{who}cannot start: {err}", SHOWN_REASON))
                return _exit_code(err)
            executor.add_node(nodes[-1])
        gc.freeze()  # a later collection would look at every module, for 35 ms
        gc.enable()
        while not stop.is_set() and not any(node.failure for node in nodes):
            spin_once(executor, nodes)
    finally:
        for node in nodes:
            node.close()
        executor.shutdown()
        for node in nodes:
            node.destroy_node()
        rclpy.shutdown()
    return FAILED if any(node.failure for node in nodes) else 0


def _refused(err: Exception) -> int:
    """Print why ROS refuses to start, before there is a log; return the exit code."""
    print(printable_lines(f"polar_pipeline cannot start: {err}"), file=sys.stderr)
    return _exit_code(err)


def _exit_code(err: Exception) -> int:
    """Return the exit code of a node that could not start: `WRONG_USAGE` for parameters and arguments, else `FAILED`.

    A backend that does not work on this machine is `FAILED`: a GPU's driver may be loaded later.
    """
    if not isinstance(err, (RuntimeError, MemoryError)):
        return WRONG_USAGE
    is_of_arguments = type(err).__name__ in _ARGUMENT_ERRORS or _ARGUMENT_TEXT in str(err)
    return WRONG_USAGE if is_of_arguments else FAILED


def spin_once(executor: Any, nodes: Sequence[LiveNode]) -> None:
    """Run the callbacks that are ready, or wait for `STOP_PERIOD` at most.

    Callbacks raise nothing, but taking a message does when there is no memory for it.
    """
    try:
        executor.spin_once(timeout_sec=STOP_PERIOD)
    except Exception as err:  # noqa: BLE001
        for node in nodes:
            node.refuse_error(err)
        time.sleep(STOP_PERIOD)  # the cause may persist


def _node_arguments(camera: Optional[Camera]) -> Dict[str, Any]:
    """Build the arguments of a camera's node; its names override those of the command line."""
    if camera is None:
        return {}
    names = [("__ns", camera.namespace), ("__node", camera.name), *camera.remappings]
    arguments = ["--ros-args", *(word for name, value in names for word in ("-r", f"{name}:={value}"))]
    if camera.params_file is not None:
        arguments += ["--params-file", str(camera.params_file)]
    overrides = [RosParameter(name, value=value) for name, value in camera.parameters.items()]
    return {"cli_args": arguments, "parameter_overrides": overrides}


def main(args: Optional[List[str]], stop: StopFlag, is_rig: bool) -> int:
    """Run the live node, or a node for every camera of a rig, until `stop` is set; return the exit code of `run`.

    The command line is that of `sys.argv` by default. Wrong arguments end the process.
    """
    parser = argparse.ArgumentParser(
        prog="polar_pipeline_rig" if is_rig else "polar_pipeline_node",
        description="A node for every camera of a rig, in one process." if is_rig else "The live node.",
        allow_abbrev=False,
    )
    if is_rig:
        parser.add_argument("rig", type=Path, metavar="RIG.yaml", help="the cameras; config/rig.yaml is an example")
        parser.add_argument("--namespace", default="", help="prefix of the cameras' namespaces")
    parser.add_argument(
        "--lifecycle", action="store_true", help="be a managed node: take frames once configured and activated"
    )
    try:
        words = remove_ros_args(args)[1:]
    except RuntimeError as err:
        return _refused(err)
    values = parser.parse_args(words)
    node_class: Type[LiveNode] = PolarNode
    if values.lifecycle:
        try:
            with importing():
                from polar_pipeline.ros.lifecycle import ManagedNode
        except ImportError as err:
            parser.error(f"--lifecycle needs the ROS package lifecycle_msgs: {err}")
        node_class = ManagedNode
    try:
        rig = read_rig(values.rig, values.namespace) if is_rig else None
    except ValueError as err:
        parser.error(str(err))
    return run(args, stop, rig, node_class)
