"""The live node: parameters, diagnostics and the ROS 2 interface around a `Pipeline`."""
