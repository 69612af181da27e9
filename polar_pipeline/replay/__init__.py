"""Offline: recordings in, recordings and reports out, comparison with a golden recording. Needs no ROS."""
