"""Corpora of builds, of loose bitcode, and of other corpora."""
