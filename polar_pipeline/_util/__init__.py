"""Helpers that have nothing to do with polarization: files, caches, text, values, processes."""
