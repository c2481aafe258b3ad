"""Inlining policies whose decisions are known."""

from pathlib import Path

import numpy as np

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights


def never_inline(folder: Path) -> Path:
    """A policy that inlines nothing."""
    width = 4
    kernels = (np.zeros((len(TRANSFORMS) * len(FEATURES), width), np.float32), np.zeros((width, 2), np.float32))
    biases = (np.zeros(width, np.float32), np.array([9, -9], np.float32))
    quantiles = tuple(np.ones(1) for _ in FEATURES)
    NetworkWeights(FEATURES, quantiles, kernels, biases, {"problem": "inlining"}).save(folder)
    return folder
