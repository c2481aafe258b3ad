"""The best policy of a run: evaluated on a validation corpus every few iterations, and kept on disk.

    best = BestPolicy(run)
    figures = best.validate(iteration, policy)              # every few iterations
    weights = best.choose(policy)                           # at the end

A policy is better if it changes the linked text of the validation corpus (for a problem that is not about size, the
score) less upwards or more downwards, in the mean over projects. `ROOT_DIR/best_policy` has the best one so far; it
survives interruptions, since it is replaced as a whole.

If even the best policy makes the mean project worse than the default does, the run keeps the default: the policy gets
the margin `ALWAYS_DEFAULT`. Where policies can have no margin, it stays as it is. Log and model card say so.
"""

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from compiler_opt.checked_values import Json
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.errors import CorpusError, PolicyError
from compiler_opt.evaluation.evaluate import EvaluationSettings, evaluate
from compiler_opt.evaluation.results import Evaluation
from compiler_opt.files import set_aside
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkWeights
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.rl.unfinished_policy import save_network

_LOG = logging.getLogger(__name__)

BEST_POLICY_DIR = "best_policy"
"""The best policy's folder in that of a training."""

VALIDATION = "validation"
"""The key, in a policy's metadata, of its result on the validation corpus."""

KEPT_DEFAULT = "keeps_the_default"
"""The key, in a policy's metadata, of the reason why it always takes the default decision."""


@dataclasses.dataclass(frozen=True)
class ValidationResult:
    """A policy's changes on the validation corpus, of linked text or of the score; negative is better.

    Attributes:
      mean: mean over projects, by which policies are compared.
      total: of all projects together.
      by_project: of each.
    """

    mean: float
    total: float
    by_project: Mapping[str, float]

    @classmethod
    def of(cls, evaluation: Evaluation) -> "ValidationResult":
        """Raises CorpusError if no project was linked."""
        policy = evaluation.policy
        total = evaluation.totals[policy]
        if evaluation.problem.objective.is_size:
            linked = {project.name: project.linked_change(policy) for project in evaluation.projects}
            by_project = {name: change for name, change in linked.items() if change is not None}
            if not by_project:
                raise CorpusError("no project of the validation corpus can be linked; give another --validation_path")
            return cls(total.linked.mean.value, total.linked.total.value, by_project)
        by_project = {project.name: project.score_change(policy) for project in evaluation.projects}
        return cls(total.project_scores.mean.value, total.project_scores.total.value, by_project)

    def text(self) -> str:
        return f"{self.mean:+.2%} in the mean of {len(self.by_project)} projects, {self.total:+.2%} together"


class BestPolicy:
    """The best policy so far. Without a validation corpus in the run, it is always the last one."""

    def __init__(self, run: TrainingRun):
        """Reads what an earlier session has kept; a folder that is damaged is set aside."""
        self._run = run
        self._folder = run.root_dir / BEST_POLICY_DIR
        self._measure = "linked text" if run.problem.objective.is_size else "score"
        self._best = self._load() if run.validation is not None else None
        self._logged = ""

    def validate(self, iteration: int, policy: Callable[[], NetworkWeights]) -> dict[str, Any]:
        """Evaluates the policy, and keeps it if it is the best so far.

        Args:
          iteration: the iterations done; 0 validates the policy that the run starts from.
          policy: makes what would be saved now, with its metadata.

        Returns:
          metrics for the history: `validation_mean`, `validation_total`, `validation_by_project`, `validation_s`; none
          without a validation corpus.

        Raises:
          CorpusError: most modules of the validation corpus fail.
          OutputError: the policy cannot be written.
        """
        if self._run.validation is None:
            return {}
        start_s = time.monotonic()
        weights = policy()
        result = self._evaluate(weights)
        is_best = self._best is None or result.mean < self._recorded_mean(self._best)
        if is_best:
            self._keep(weights, iteration, result)
        _LOG.info(
            "validation after iteration %d: %s %s%s",
            iteration,
            self._measure,
            result.text(),
            ", the best so far" if is_best else "",
        )
        return {
            "validation_mean": result.mean,
            "validation_total": result.total,
            "validation_by_project": dict(result.by_project),
            "validation_s": round(time.monotonic() - start_s, 3),
        }

    def choose(self, iteration: int, policy: Callable[[], NetworkWeights]) -> NetworkWeights:
        """The policy to save: the best one so far, or the default's decisions if that is worse than the default."""
        if self._run.validation is None:
            return policy()
        if self._best is None:
            self.validate(iteration, policy)
        best = self._best
        assert best is not None
        found = self._recorded(best)
        reason = (
            f"the best policy of this run, of iteration {found['iteration']}, changes the {self._measure} of its "
            f"validation corpus by {found['mean of projects']:+.2%} in the mean of projects"
        )
        if self._recorded_mean(best) <= 0:
            self._log_once(logging.INFO, f"saving {reason}")
            return best
        if not self._run.problem.decision.policy(best).takes_margin:
            self._log_once(logging.WARNING, f"WORSE THAN THE DEFAULT: {reason}; it is saved, but do not deploy it")
            return dataclasses.replace(best, metadata={**best.metadata, "worse_than_the_default": reason})
        self._log_once(
            logging.WARNING, f"WORSE THAN THE DEFAULT: {reason}; the saved policy takes only the default's decisions"
        )
        return dataclasses.replace(best, metadata={**best.metadata, KEPT_DEFAULT: reason}, margin=ALWAYS_DEFAULT)

    def _log_once(self, level: int, text: str) -> None:
        if text != self._logged:
            _LOG.log(level, "%s", text)
            self._logged = text

    def _evaluate(self, weights: NetworkWeights) -> ValidationResult:
        run, config = self._run, self._run.config
        assert run.validation is not None
        policy = run.problem.decision.policy(weights, name="validated")
        rollout: RolloutSettings = run.rollout_settings()
        return ValidationResult.of(
            evaluate(
                run.validation,
                policy,
                problem=run.problem,
                toolchain=run.toolchain,
                settings=EvaluationSettings(seed=config.seed, rollout=rollout),
                pool=run.pool,
            )
        )

    def _keep(self, weights: NetworkWeights, iteration: int, result: ValidationResult) -> None:
        assert self._run.validation is not None
        about: dict[str, Json] = {
            "corpus": self._run.validation.root.resolve().name,
            "key": self._key(),
            "measure": self._measure,
            "iteration": iteration,
            "mean of projects": result.mean,
            "together": result.total,
        }
        self._best = dataclasses.replace(weights, metadata={**weights.metadata, VALIDATION: about})
        save_network(self._folder, self._best)

    def _load(self) -> NetworkWeights | None:
        if not self._folder.exists():
            return None
        try:
            found = NetworkWeights.load(self._folder)
        except PolicyError as error:
            _LOG.warning("%s; kept as %s; the best policy is looked for anew", error, set_aside(self._folder).name)
            return None
        if self._recorded(found).get("key") != self._key():
            _LOG.warning("%s: was validated on another corpus; the best policy is looked for anew", self._folder)
            return None
        return found

    def _key(self) -> str:
        """Identifies what the results depend on: corpus, compiler and problem."""
        corpus = self._run.validation
        assert corpus is not None
        names = [module.name for module in corpus.modules]
        problem = self._run.problem
        content = [str(corpus.root.resolve()), names, self._run.toolchain.identity(), problem.name]
        if problem.objective.identity:
            content.append(problem.objective.identity)
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @staticmethod
    def _recorded(weights: NetworkWeights) -> Mapping[str, Any]:
        found = weights.metadata.get(VALIDATION)
        return found if isinstance(found, Mapping) else {}

    def _recorded_mean(self, weights: NetworkWeights) -> float:
        found = self._recorded(weights).get("mean of projects")
        return found if isinstance(found, float) else float("inf")
