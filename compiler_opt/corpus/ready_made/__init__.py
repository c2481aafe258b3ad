"""Ready-made corpora of open-source projects: their manifest, download and compilation."""
