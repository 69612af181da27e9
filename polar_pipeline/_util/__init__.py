"""Helpers that know nothing of polarization."""
