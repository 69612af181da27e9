"""A fuzzer of what comes into this package from outside; see `engine`, and `python test/fuzz --help`."""
