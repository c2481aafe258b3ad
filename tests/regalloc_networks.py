"""Networks for the register allocator that decide otherwise than the compiler."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from compiler_opt.collect.rollout import rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import FeaturePolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import Problem


def random_network(problem: Problem, corpus: Corpus, toolchain: Toolchain, place: Path, seed: int) -> NetworkWeights:
    """Random, over quantiles of what real modules send; far from the default."""
    default = FeaturePolicy(problem.decision.advisor.plugin_default_feature or "")
    results = [rollout(module, default, problem, toolchain, scratch=place) for module in corpus.modules]
    seen = [result.trajectory.features() for result in results if result.trajectory is not None]
    features = {name: np.concatenate([each[name] for each in seen]) for name in seen[0]}
    return random_network_over(problem, features, seed)


def random_network_over(problem: Problem, features: Mapping[str, np.ndarray], seed: int) -> NetworkWeights:
    """The same, over quantiles of features as the compiler sends them."""
    seen_by_networks = problem.decision.action_space.vocabulary_values(features)
    columns = [seen_by_networks[name].reshape(-1).astype("f8") for name in problem.decision.feature_names]
    values = np.nan_to_num(np.stack(columns, axis=-1), posinf=9e9)
    rng = np.random.default_rng(seed)
    sizes = (3 * len(problem.decision.feature_names), 16, 16, problem.decision.action_space.num_outputs)
    return NetworkWeights(
        problem.decision.feature_names,
        tuple(np.quantile(column, np.linspace(0, 1, 50), method="inverted_cdf") for column in values.T),
        tuple(rng.normal(0, np.sqrt(2 / rows), (rows, width)).astype("f4") for rows, width in pairwise(sizes)),
        tuple(rng.normal(0, 0.3, size).astype("f4") for size in sizes[1:]),
        {"problem": problem.name},
    )
