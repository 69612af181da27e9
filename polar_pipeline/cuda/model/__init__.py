"""What kernels need and cost on a GPU, and the schedules chosen for it; needs no GPU."""
