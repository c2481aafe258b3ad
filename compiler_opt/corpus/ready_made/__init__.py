"""Corpora of open-source projects: what there is, how it is fetched, and how it is compiled."""
