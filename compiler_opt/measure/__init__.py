"""Measures programs that run: instructions, cache misses, mispredicted branches, and wall time."""
