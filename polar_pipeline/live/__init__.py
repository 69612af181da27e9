"""The live engine without ROS: raw messages in, serialized products out. Imports no ROS."""
