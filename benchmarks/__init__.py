"""Measurements: each module is a command that prints figures and their conditions, `python -m benchmarks.NAME`."""
