"""Cameras that the package reads itself."""
