"""Measurements, each a command that prints its figure and the conditions: `python -m benchmarks.NAME`."""
