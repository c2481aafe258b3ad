"""What a real compiler sees of real code: the C++ standard library's regular expressions and containers."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.lstm import LSTM
from compiler_opt.policies.policy import RandomPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.binary import BinaryPolicy
from tests.small_corpus import BUSY_SOURCES, make_corpus

SOURCES = {
    "library/words.cpp": """
#include <regex>
#include <string>
#include <vector>
std::vector<std::string> words(const std::string &text) {
  static const std::regex word("[a-z]+(-[a-z]+)*");
  std::vector<std::string> found;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i) found.push_back(i->str());
  return found;
}
""",
    "library/report.cpp": """
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
std::string report(const std::vector<std::string> &words) {
  std::unordered_map<std::string, std::vector<int>> places;
  for (size_t i = 0; i < words.size(); i++) places[words[i]].push_back(int(i));
  std::map<size_t, std::set<std::string>> by_number;
  for (auto &[word, where] : places) by_number[where.size()].insert(word);
  std::ostringstream out;
  for (const auto &[number, same] : by_number)
    for (const auto &word : same) out << number << ' ' << word << '\\n';
  auto sorted = words;
  std::sort(sorted.begin(), sorted.end());
  for (auto &word : sorted) out << word;
  return out.str();
}
""",
}


def real_observations(toolchain: Toolchain, directory: Path, at_least: int) -> dict[str, np.ndarray]:
    """The compiler's own decisions' features, then those of compilations that decide at random; `[T]` int64 by name."""
    problem = problems.load("inlining")
    scratch = directory / "scratch"
    scratch.mkdir()
    corpus_dir = directory / "corpus"
    corpus_dir.mkdir()
    corpus = make_corpus(corpus_dir, str(toolchain.clang), SOURCES)
    parts: list[dict[str, np.ndarray]] = []
    seed = 0
    while sum(len(part["callsite_cost"]) for part in parts) < at_least:
        policy = RandomPolicy(0.3 + 0.05 * (seed % 8)) if seed else DefaultPolicy(problem)
        for module in corpus.modules:
            result = rollout(module, policy, problem, toolchain, scratch=scratch, seed=seed)
            assert result.trajectory is not None, result.failure
            features = result.trajectory.features()
            parts.append({name: features[name].reshape(-1) for name in problem.decision.feature_names})
        seed += 1
    return {name: np.concatenate([part[name] for part in parts]) for name in problem.decision.feature_names}


@dataclasses.dataclass(frozen=True)
class Decisions:
    """Real decisions of a problem of register allocation, as the compiler itself sends them.

    Attributes:
      problem: what is decided.
      header: of the channel.
      records: `[T]`, a field per feature.
    """

    problem: AnyProblem
    header: Header
    records: np.ndarray

    @property
    def features(self) -> dict[str, np.ndarray]:
        return {name: self.records[name] for name in self.header.names}


def real_decisions(name: str, toolchain: Toolchain, directory: Path) -> Decisions:
    """Over a thousand decisions: the compiler's own, then those of compilations by the problem's simple policies."""
    problem = problems.load(name)
    scratch = directory / "scratch"
    scratch.mkdir()
    sources = {"library/report.cpp": SOURCES["library/report.cpp"], **BUSY_SOURCES}
    corpus_dir = directory / "corpus"
    corpus_dir.mkdir()
    corpus = make_corpus(corpus_dir, str(toolchain.clang), sources, level="O2")
    settings = RolloutSettings(backend="channel")
    trajectories = []
    for policy in (problem.decision.default_policy, *problem.decision.action_space.baselines().values()):
        for module in corpus.modules:
            result = rollout(module, policy, problem, toolchain, scratch=scratch, settings=settings)
            assert result.failure is None
            if result.trajectory is not None:
                trajectories.append(result.trajectory)
    header = trajectories[0].header
    observations = b"".join(trajectory.observations for trajectory in trajectories)
    return Decisions(problem, header, np.frombuffer(observations, record_dtype(header.features)))


def weights_for(
    observations: dict[str, np.ndarray], *, hidden: tuple[int, ...] = (64, 64), seed: int = 0
) -> NetworkWeights:
    """A network over the observations' own quantiles, random but as large as training makes them, and of two minds.

    About half of the observations are decided either way.
    """
    rng = np.random.default_rng(seed)
    sizes = (3 * len(observations), *hidden, 2)
    kernels = [
        rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    kernels[-1] *= 10
    weights = NetworkWeights(
        tuple(observations),
        tuple(np.quantile(values, np.linspace(0, 1, 64)) for values in observations.values()),
        tuple(kernels),
        tuple(rng.normal(0, 0.1, size).astype(np.float32) for size in sizes[1:]),
        {"problem": "inlining", "seed": seed},
    )
    off, on = BinaryPolicy(weights).logits(observations).T
    leanings = np.unique(np.quantile(on - off, np.linspace(0.4, 0.6, 100), method="nearest"))
    gap = int(np.argmax(np.diff(leanings))) if len(leanings) > 1 else 0
    weights.biases[-1][1] -= leanings[gap : gap + 2].mean()
    return weights


def recurrent(weights: NetworkWeights, units: int, seed: int = 0) -> NetworkWeights:
    """A network of the same dense layers behind an LSTM, random but as large as training makes it."""
    rng = np.random.default_rng(seed)
    inputs, outputs = 3 * len(weights.features), len(weights.biases[0])

    def normal(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0, np.sqrt(2 / rows), (rows, columns)).astype(np.float32)

    bias = np.repeat([0, 1, 0, 0], units).astype(np.float32)
    lstm = LSTM(normal(inputs, 4 * units), normal(units, 4 * units), bias)
    return dataclasses.replace(weights, kernels=(normal(units, outputs), *weights.kernels[1:]), lstm=lstm)
