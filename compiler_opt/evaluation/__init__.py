"""Compares policies with the compiler's default on a corpus: measurements, statistics, reports."""
