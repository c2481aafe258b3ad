"""Predicts the cycles of basic blocks of machine code: a data set from corpora, networks, and cycles of functions."""
