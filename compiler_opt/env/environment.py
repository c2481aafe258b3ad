"""The Gymnasium environment of a compiler's decisions.

Legend: F features or inputs, C candidates of a decision, T decisions of an episode.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from compiler_opt import problem as problems
from compiler_opt.collect.baseline import Baseline, measure_baseline
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import check_sampling, make_sampler
from compiler_opt.env.agents_view import agents_view
from compiler_opt.env.compilation_process import CompilationProcess, Question
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import shown
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.vocabulary import listed_features, load_vocabulary
from compiler_opt.policies.weights import TRANSFORMS
from compiler_opt.problem import AnyProblem, reward
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand
from compiler_opt.tensor_spec import TensorSpec

_MAX_SEED = 1 << 31


@dataclasses.dataclass(frozen=True)
class EnvSettings:
    """Settings of an environment.

    Attributes:
      sampling: how `reset` draws modules: `uniform`, `project` or `size`, see `corpus.sampling`.
      decision_rewards: whether the last step's `info` also has `decision_rewards`, each decision's share of the reward.
        The default's decisions of a module are compiled once for it.
      timeout_s: wall-clock seconds of an episode, including what the agent takes to decide.
    """

    sampling: str = "uniform"
    decision_rewards: bool = False
    timeout_s: float = 3600.0

    def __post_init__(self) -> None:
        check_sampling(self.sampling)
        if self.sampling == "decisions":
            raise ConfigError("sampling: expected uniform, project or size for environments, found 'decisions'")
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s: expected a positive number, found {self.timeout_s!r}")


class CompilerEnv(gymnasium.Env[Any, Any]):
    """An episode is the compilation of a module, a step one of its decisions.

    The reward is 0 until the last step, whose reward is the share of the default's score that was saved, `1 - score /
    baseline`: the compiler has a size only when it is done. If a module cannot be compiled under the agent's decisions,
    its episode ends truncated, with reward 0 and the reason as `failure` in `info`.

    Actions are 0 or 1 (inlining), the position of one of C candidates (eviction), or a number (allocation priority).

    Observations are a dictionary of the compiler's features, of its types; or, with a vocabulary, one array float32 of
    what our networks observe: the quantile rank of each feature, its root and its square. It is `[3 F]`, or `[C, 3 F]`
    if there are candidates.

    `info` has the `module`, and the `action_mask` `[C]` of legal candidates; at the end also `score`, `baseline` and
    `num_decisions`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  gymnasium's declaration

    def __init__(
        self,
        modules: Sequence[Module],
        baseline: Baseline[Any],
        toolchain: Toolchain,
        problem: AnyProblem,
        *,
        vocabulary: Mapping[str, np.ndarray] | None = None,
        settings: EnvSettings = EnvSettings(),
    ):
        """Starts no process yet.

        Args:
          modules: to compile; those that the baseline lacks are left out.
          baseline: the default's scores.
          toolchain: the compiler.
          problem: whose decisions are taken.
          vocabulary: quantiles of F features, or inputs of each candidate, for observations in one array.
          settings: see `EnvSettings`.

        Raises:
          ConfigError: the compiler does not send a feature of the vocabulary, or the actions are of another kind.
          CorpusError: the baseline has none of the modules.
          ToolchainError: the problem's decisions cannot be made over the compiler's channel.
        """
        self._modules = tuple(module for module in modules if module.name in baseline.scores)
        if not self._modules:
            raise CorpusError("environment: none of the modules has a baseline; expected modules that compile")
        self._baseline, self._problem, self._settings = baseline, problem, settings
        sent = toolchain.require(problem.decision.advisor.problem).features
        self._view = agents_view(problem.decision.action_space, sent)
        available = problem.decision.available_features([spec.name for spec in sent])
        self._names: tuple[str, ...] = ()  # of the vocabulary
        self._encoder: QuantileEncoder | None = None
        self.observation_space: gymnasium.Space[Any]
        if vocabulary is None:
            self._spaces = {spec.name: _feature_space(spec) for spec in self._view.features(available, sent)}
            self.observation_space = gymnasium.spaces.Dict(self._spaces)
        else:
            if missing := [name for name in vocabulary if name not in available]:
                raise ConfigError(f"environment: this compiler does not send {', '.join(missing)} of the vocabulary")
            self._names, self._encoder = tuple(vocabulary), QuantileEncoder(list(vocabulary.values()))
            *rows, columns = self._view.network_shape(len(vocabulary))
            self.observation_space = gymnasium.spaces.Box(0, 1, (*rows, len(TRANSFORMS) * columns), np.float32)
        self.action_space = self._view.action_space
        rollouts = RolloutSettings(timeout_s=settings.timeout_s, record_call_sites=settings.decision_rewards)
        self._process = CompilationProcess(toolchain, problem, rollouts)
        self._sampler = make_sampler(settings.sampling, self._modules, 0)
        self._position = 0
        self._defaults: dict[str, Rollout[Any]] = {}
        self._module: Module | None = None
        self._features: Mapping[str, np.ndarray] = {}  # of the decision that waits
        self._num_decisions = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins to compile a module, the next one that has decisions, or that of `options["module"]`.

        Raises:
          ConfigError: there is no such module.
          CorpusError: no module has decisions.
          CompileError: the compiler cannot be run.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._sampler, self._position = make_sampler(self._settings.sampling, self._modules, seed), 0
        failures = []
        for module in self._candidates((options or {}).get("module")):
            self._process.begin(module, int(self.np_random.integers(_MAX_SEED)))
            event = self._process.next_event()
            if isinstance(event, Question):
                self._module, self._num_decisions = module, 0
                self._features = event.header.decode(event.observation)
                return self._observed(), {"module": module.name, **self._view.info(self._features)}
            failures.append(event.failure or f"{module.name}: has no decision")
        raise CorpusError(f"environment: none of {len(failures)} modules has a decision; the first: {failures[0]}")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a decision; see the class for rewards and `info`.

        Raises:
          ConfigError: no episode has begun.
          CompileError: the compiling process was killed; reset the environment.
        """
        module = self._module
        if module is None:
            raise ConfigError("environment: the episode is over, or none has begun; call reset")
        if not self._view.is_allowed(action, self._features):
            raise ConfigError(f"environment: expected {self._view.expected}, found {action!r}")
        self._num_decisions += 1
        info: dict[str, Any] = {"module": module.name}
        try:
            self._process.answer(self._view.advice(action))
            event = self._process.next_event()
        except BaseException:
            self._module = None
            raise
        if isinstance(event, Question):
            self._features = event.header.decode(event.observation)
            return self._observed(), 0.0, False, False, {**info, **self._view.info(self._features)}
        self._module = None
        info["num_decisions"] = self._num_decisions
        if event.measurement is None:
            return self._observed(), 0.0, False, True, {**info, "failure": str(event.failure)}
        baseline = self._baseline.scores[module.name]
        score = self._problem.score(event.measurement, self._baseline.contexts[module.project])
        info |= {"score": score, "baseline": baseline}
        if self._settings.decision_rewards:
            info["decision_rewards"] = self._decision_rewards(module, event, baseline)
        return self._observed(), reward(score, baseline), True, False, info

    def close(self) -> None:
        """Ends the compiling process."""
        self._module = None
        self._process.close()

    def _candidates(self, name: str | None) -> Iterator[Module]:
        """The module of a name or, in the sampler's order, as many as there are."""
        if name is None:
            for _ in self._modules:
                [module] = self._sampler.draw(self._position, 1)
                self._position += 1
                yield module
            return
        found = next((module for module in self._modules if module.name == name), None)
        if found is None:
            raise ConfigError(f"environment: expected a module of the corpus that compiles, found {shown(name)}")
        yield found

    def _observed(self) -> Any:
        if self._encoder is None:
            return {name: _finite(self._features[name].reshape(space.shape)) for name, space in self._spaces.items()}
        values = self._view.network_values(self._features, self._names)
        return expand(self._encoder.ranks(values)).astype(np.float32)

    def _decision_rewards(self, module: Module, result: Rollout[Any], baseline: float) -> np.ndarray:
        """`[T]` float64, what each decision has saved, compared with the default's compilation, over the baseline."""
        if module.name not in self._defaults:
            self._defaults[module.name] = self._process.default(module)
        default = self._defaults[module.name]
        nothing = np.zeros(self._num_decisions)
        pair = (result, default)
        sites = [each.trajectory.sites for each in pair if each.trajectory is not None]
        measurements = [each.measurement for each in pair if each.measurement is not None]
        if len(sites) < len(pair) or len(measurements) < len(pair) or None in sites or baseline <= 0:
            return nothing
        credit = self._problem.credit(measurements, sites, self._baseline.contexts[module.project])  # type: ignore[arg-type]
        # Credit is relative to the mean of both.
        return nothing if credit is None else len(pair) * credit[0] / baseline


def _feature_space(spec: TensorSpec) -> gymnasium.spaces.Box:
    limits: Any = np.iinfo(spec.dtype) if spec.dtype.kind in "iu" else np.finfo(spec.dtype)
    # The compiler's shapes begin with 1, or are `(1,)` for scalars.
    return gymnasium.spaces.Box(limits.min, limits.max, spec.shape[1:], spec.dtype)


def _finite(values: np.ndarray) -> np.ndarray:
    """Numbers instead of NaN (0) and infinity (the largest), as our networks observe; a copy."""
    return np.array(values) if values.dtype.kind in "iu" else np.array(np.nan_to_num(values))


def compiler_env(
    corpus: Path | str,
    *,
    clang_path: str | None = None,
    compile_task: str = "inlining",
    vocab_path: Path | str | None = None,
    num_workers: int | None = None,
    settings: EnvSettings = EnvSettings(),
) -> CompilerEnv:
    """The environment of a corpus, whose modules are first compiled by the default, for the baseline.

    Args:
      corpus: its folder, as `--data_path` of commands.
      clang_path: the compiler; by default the newest one installed.
      compile_task: the problem's name.
      vocab_path: folder of a vocabulary, for flat observations of all the features that it and the compiler have.
      num_workers: compilations of the baseline at a time; one per CPU by default.
      settings: see `EnvSettings`.

    Raises:
      CompilerOptError: corpus, compiler, problem or vocabulary cannot be used; the message says why.
    """
    problem, toolchain, modules = problems.load(compile_task), probe(clang_path), Corpus.load(corpus).modules
    vocabulary = None
    if vocab_path is not None:
        sent = [spec.name for spec in toolchain.require(problem.decision.advisor.problem).features]
        listed = listed_features(Path(vocab_path))
        known = [name for name in problem.decision.available_features(sent) if name in listed]
        vocabulary = load_vocabulary(Path(vocab_path), known)
    with WorkerPool(toolchain, problem, num_workers) as pool:
        baseline = measure_baseline(modules, pool, problem)
    return CompilerEnv(modules, baseline, toolchain, problem, vocabulary=vocabulary, settings=settings)
