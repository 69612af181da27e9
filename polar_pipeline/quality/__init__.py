"""Figures about a stream of frames: image quality, layout, latency."""
