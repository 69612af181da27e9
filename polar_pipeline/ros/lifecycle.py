"""The live node as a ROS 2 managed node, which a lifecycle manager configures, activates, deactivates and cleans up.

Needs `lifecycle_msgs`, on which rclpy's part of it is built.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple, Type

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.lifecycle import LifecycleNodeMixin, TransitionCallbackReturn

from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.ros.node import START_ERRORS, LiveNode


def _transition(done: str, step: Callable[[Any], None], expected: Tuple[Type[Exception], ...] = ()) -> Any:
    """Return the callback of a transition to the state `done`; after `expected` errors the state is as before."""

    def take_step(self: ManagedNode, _: Any) -> Any:
        try:
            step(self)
        except expected as err:
            self.problem = printable(f"cannot be {done}: {err}", SHOWN_REASON)
            self.get_logger().error(self.problem)
            return TransitionCallbackReturn.FAILURE
        except Exception as err:  # noqa: BLE001 - rclpy would not say what it was
            self.problem = printable(f"cannot be {done}: {type(err).__name__}: {err}", SHOWN_REASON)
            self.refuse_error(err)
            return TransitionCallbackReturn.ERROR
        self.problem = ""
        self.get_logger().info(f"{done}; {self.state}")
        return TransitionCallbackReturn.SUCCESS

    return take_step


class ManagedNode(LiveNode, LifecycleNodeMixin):  # type: ignore[misc]
    """A live node that takes frames while a lifecycle manager has it active; see `LiveNode`.

    A step that fails because of parameters or the machine leaves the state as it was, with the reason in the log and in
    `/diagnostics`. After any other error everything is released, and the node is unconfigured. Arguments are those of
    `LiveNode`.
    """

    def __init__(self, argv: Optional[Sequence[str]] = None, **arguments: Any) -> None:
        LiveNode.__init__(self, argv, **arguments)
        LifecycleNodeMixin.__init__(self)
        self._change_of_rclpy = self._service_change_state.callback
        self._service_change_state.callback = self.guarded(self._on_change_state)
        self.get_logger().info("waits to be configured")

    def _on_change_state(self, request: Any, response: Any) -> Any:
        """Answer a manager; before Kilted, rclpy raises if a transition is not possible, and would never answer."""
        try:
            return self._change_of_rclpy(request, response)
        except _rclpy.RCLError:  # rcl has logged it
            response.success = False
            return response

    def finalize(self) -> None:
        """Release everything; the process stays, and the node with its parameters, until a signal ends it."""
        self.cleanup()
        self.state = "finalized"

    on_configure = _transition("configured", LiveNode.configure, START_ERRORS)
    on_activate = _transition("activated", LiveNode.activate, START_ERRORS)
    on_deactivate = _transition("deactivated", LiveNode.deactivate)
    on_cleanup = _transition("cleaned up", LiveNode.cleanup)
    on_shutdown = _transition("shut down", finalize)
    #: Everything is released after an error that was not expected, so that the node can be configured again.
    on_error = on_cleanup
