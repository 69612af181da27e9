"""What computes a frame: the interface of a backend, the backends of CPU and GPU, and every operator in float64."""
