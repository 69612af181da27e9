"""The CPU backend: OpenCV and NumPy on horizontal strips that stay in cache, one thread per core."""
