"""Makes corpora from builds, from loose bitcode files, and from other corpora."""
