"""Checks of `polar-pipeline doctor`."""
