"""Reinforcement learning: networks, learners, the training loop."""

import contextlib
import os

# TF-Agents 0.19 is written against Keras 2, which TensorFlow looks for only when this is set before its first import.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# What TensorFlow's libraries print when they find no GPU reads like errors and is none; Python exceptions stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# TF-Agents imports gym, which prints a notice about its own future on stderr.
with contextlib.suppress(ImportError):
    from gym_notices import notices

    notices.notices.clear()
