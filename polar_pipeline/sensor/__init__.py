"""Polarization sensors: mosaics, raw frames, the forward model, and synthetic scenes."""
