"""Frames from and to files: ROS messages, bags, pictures, and their compression. Needs no ROS."""
