"""Cameras as sources of frames: GigE Vision and USB3 Vision through Aravis. Imports no ROS."""
