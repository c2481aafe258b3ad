"""The progress of a training, and the iterations that are planned next."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.collect.groups import RolloutBatch
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import ModuleSampler
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import TrainingRun


@dataclasses.dataclass
class Progress:
    """Progress of a run, over all its sessions.

    Attributes:
      iteration: iterations done.
      elapsed_s: wall-clock seconds that they took.
      compiles: compilations that they took.
      position: modules drawn so far for these iterations.
      undecided: names of modules without decisions.
      cut: names of modules that an iteration did not wait for, and that come again.
      iteration_s: wall-clock seconds of the last iteration.
    """

    iteration: int = 0
    elapsed_s: float = 0.0
    compiles: int = 0
    position: int = 0
    undecided: set[str] = dataclasses.field(default_factory=set)
    cut: list[str] = dataclasses.field(default_factory=list)
    iteration_s: float = 0.0

    def share(self, config: TrainingConfig) -> float:
        """Share of the run that is done: from 0 to 1, or more if the last iteration took longer than was left."""
        by_time = self.elapsed_s / (60 * config.max_minutes) if config.max_minutes else 0.0
        by_iterations = self.iteration / config.num_iterations if config.num_iterations else 1.0
        by_compiles = self.compiles / config.max_compiles if config.max_compiles else 0.0
        return max(by_iterations, by_compiles, by_time)

    def text(self, config: TrainingConfig) -> str:
        """How far the run is, against all its limits, such as `12 of 1,000 iterations`."""
        parts = [f"{self.iteration:,} of {config.num_iterations:,} iterations"]
        if config.max_minutes:
            parts.append(f"{self.elapsed_s / 60:.1f} of {config.max_minutes:g} minutes")
        if config.max_compiles:
            parts.append(f"{self.compiles:,} of {config.max_compiles:,} compilations")
        return ", ".join(parts)

    def left_s(self, config: TrainingConfig) -> float:
        """Wall-clock seconds that the rest takes if it goes on as so far. There has been an iteration."""
        return max(0.0, self.elapsed_s / self.share(config) - self.elapsed_s)

    def is_validated(self, config: TrainingConfig, compiles_before: int) -> bool:
        """Whether the policy is validated after an iteration, before which there were so many compilations."""
        if self.share(config) >= 1:
            return True
        if every := config.validation_compiles:
            return self.compiles // every > compiles_before // every
        return self.iteration % config.validation_iterations == 0

    def has_more(self, config: TrainingConfig, num_planned: int) -> bool:
        """Whether the run has more iterations than those that are planned, as far as their number is limited."""
        return self.iteration + num_planned < config.num_iterations

    def add(self, plan: "Plan", batch: RolloutBatch, seconds: float) -> None:
        """Counts an iteration that took so many wall-clock seconds."""
        self.iteration += 1
        self.iteration_s = seconds
        self.elapsed_s += seconds
        self.compiles += batch.num_compiles
        self.position = plan.next_position
        self.undecided.update(batch.undecided)
        self.cut = [name for name in self.cut if name not in plan.again] + list(batch.cut)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "undecided": sorted(self.undecided)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Progress":
        return cls(**{**value, "undecided": set(value["undecided"])})


@dataclasses.dataclass(frozen=True)
class Plan:
    """An iteration that is being collected.

    Attributes:
      seed: of its rollouts and its learning.
      modules: that are compiled.
      again: names of those among them that an earlier iteration has cut.
      next_position: modules drawn, including these.
      num_learned: iterations that its policy has learned from.
    """

    seed: tuple[int, int]
    modules: Sequence[Module]
    again: Sequence[str]
    next_position: int
    num_learned: int

    @property
    def number(self) -> int:
        """The iteration's, counted from 1."""
        return self.seed[1] + 1

    @classmethod
    def make(cls, run: TrainingRun, progress: Progress, plans: Sequence["Plan"], sampler: ModuleSampler) -> "Plan":
        """Draws the modules of the next iteration: those that were cut, others, but none without decisions."""
        config = run.config
        position = plans[-1].next_position if plans else progress.position
        planned = {name for plan in plans for name in plan.again}
        count = config.modules_per_iteration(run.pool.num_workers)
        # A resumed run may have another corpus.
        scores = run.baseline().scores
        again = [name for name in dict.fromkeys(progress.cut) if name not in planned and name in scores][:count]
        drawn = sampler.draw(position, count - len(again)) if count > len(again) else []
        others = [module for module in drawn if module.name not in {*progress.undecided, *again}]
        modules = [*(run.corpus.by_name[name] for name in again), *others]
        seed = (config.seed, progress.iteration + len(plans))
        return cls(seed, modules, again, position + len(drawn), progress.iteration)
