"""Which quantiles a run uses."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary, check_same
from compiler_opt.policies.vocabulary import load_vocabulary
from compiler_opt.policies.weights import NetworkWeights


def of_run(
    vocab_path: str | None,
    warmstart_policy_dir: str,
    features: Sequence[str],
    sent: Collection[str],
    embeddings: Ir2VecVocabulary | None = None,
) -> Mapping[str, np.ndarray]:
    """A vocabulary by feature: that of the policy to start from, else the given one.

    Args:
      vocab_path: folder of the vocabulary.
      warmstart_policy_dir: folder of the policy; empty for none.
      features: what the problem lets a policy see.
      sent: what the compiler sends.
      embeddings: what it makes embeddings by.

    Raises:
      ConfigError: neither is given.
      PolicyError: one cannot be read, the vocabulary lacks a feature, or the policy is for other features or
        embeddings.
    """
    if warmstart_policy_dir:
        # A policy's weights mean nothing under other quantiles than its own.
        weights = NetworkWeights.load(Path(warmstart_policy_dir))
        check_same(weights.metadata.get("toolchain"), embeddings, warmstart_policy_dir)
        quantiles = dict(zip(weights.features, weights.quantiles, strict=True))
    elif vocab_path:
        quantiles = load_vocabulary(Path(vocab_path), features)
    else:
        raise ConfigError(
            "expected --vocab_path or --warmstart_policy_dir, found neither; make one with generate_vocab.py"
        )
    odd = [name for name in quantiles if name not in features or name not in sent]
    if odd:
        raise PolicyError(
            f"{warmstart_policy_dir or vocab_path}: is for other features than this compiler sends: {', '.join(odd)}; "
            "use what was made for the same compiler and --compile_task"
        )
    return quantiles
