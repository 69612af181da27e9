"""Recordings in, recordings of their products and reports out, comparison with a golden recording. Needs no ROS."""
