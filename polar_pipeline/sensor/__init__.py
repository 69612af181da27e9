"""Polarization sensors: mosaics, raw frames, and the forward model."""
