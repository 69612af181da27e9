"""Fuzzed messages and recordings, the targets of `test_fuzz.py`: how inputs are made and how answers are checked."""
