"""Products, times and figures of quality in the Rerun viewer, or in a file that it opens."""
