"""The CPU backend: compiled C++ kernels, or the float64 reference without them."""
