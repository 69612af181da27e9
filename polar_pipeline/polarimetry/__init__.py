"""Polarimetry: geometry of the world from polarization, constants of the methods, color maps of angles."""
