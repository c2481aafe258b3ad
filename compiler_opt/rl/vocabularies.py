"""Which quantiles a run uses."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import ConfigError
from compiler_opt.policies.network import NetworkWeights
from compiler_opt.policies.vocabulary import load_vocabulary


def of_run(vocab_path: str | None, warmstart_policy_dir: str, features: Sequence[str]) -> Mapping[str, np.ndarray]:
    """A vocabulary by feature: the given one, else that of the policy to start from.

    Raises:
      ConfigError: neither is given.
      PolicyError: one cannot be read, or lacks a feature.
    """
    if warmstart_policy_dir:
        # A policy's weights mean nothing under other quantiles than its own.
        weights = NetworkWeights.load(Path(warmstart_policy_dir))
        return dict(zip(weights.features, weights.quantiles, strict=True))
    if vocab_path:
        return load_vocabulary(Path(vocab_path), features)
    raise ConfigError("expected --vocab_path or --warmstart_policy_dir, found neither; make one with generate_vocab.py")
