"""Recordings and arrays of frames on Dask: many processes, GPUs or machines. Needs the extra `batch`."""
