"""The CUDA backend: fused kernels, scheduled per device. Only this package imports CuPy."""
