"""The commands `play` and `replay.launch.py`: a recording as ROS topics, with the frames that come back."""
