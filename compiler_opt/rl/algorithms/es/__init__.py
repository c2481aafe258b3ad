"""Evolution strategies (ES) over the weights of a network, or the parameters of a rule that a network then clones."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import Algorithm, AlgorithmConfigs, AlgorithmEntry
from compiler_opt.rl.config import check_range
from compiler_opt.rl.training_run import TrainingRun

NETWORK, RULE = "network", "rule"
TRUST_REGION = "trust_region"


@dataclasses.dataclass(frozen=True)
class ESConfig:
    """Hyperparameters of ES.

    Attributes:
      parameters: what is searched: the weights of a `network`, or the parameters of the problem's `rule`, as far as
        their gradients are significant (see `rule.py`), in units of each parameter's scale.
      noise: standard deviation of the perturbation of each parameter.
      modules_per_direction: modules that are compiled under the same perturbations, whose mean gain counts. With 1,
        each module has perturbations of its own; with at least `train_eval.num_modules`, all modules of an iteration
        have the same.
      optimizer: how a network's weights follow the estimated gradient: `plain` adds it, times the learning rate;
        `momentum` also adds a share of the previous step; `adam` divides it by its moving root mean square;
        `trust_region` goes along it as far as has proved right, see `trust_region.py`.
      learning_rate: of the optimiser; of a rule: the largest change of a parameter per iteration.
      momentum: of `momentum`: that share; of a rule: decay per iteration of the average of the gradients.
      radius: of `trust_region`: the length of the first step, as a share of that of the perturbations. Each module then
        tries the last step, too, as one of its `train_eval.rollouts_per_module` / 2 directions, of which it needs two.
      averaging: decay per iteration of the moving average of the parameters, which is the policy that is saved.
      score_exponent: of a rule: exponent of a function's score in its weight: with 0, the relative change of each
        function counts alike; with 1, the total score counts.
      score_offset: of a rule: added to scores before dividing by them, so that functions with tiny scores do not
        dominate.
      cloned_modules: of a rule: modules whose decisions under the rule the network learns.
      cloning_epochs: of a rule: most epochs of cloning, see `BehavioralCloningConfig`.

    Raises:
      ValueError: unknown parameters, an unknown optimiser, or a number out of range.
    """

    parameters: str = NETWORK
    noise: float = 0.02
    modules_per_direction: int = 1
    optimizer: str = "adam"
    learning_rate: float = 3e-3
    momentum: float = 0.9
    radius: float = 0.3
    averaging: float = 0.9
    score_exponent: float = 0.3
    score_offset: float = 5.0
    cloned_modules: int = 300
    cloning_epochs: int = 50

    def __post_init__(self) -> None:
        if self.parameters not in (NETWORK, RULE):
            raise ValueError(f"parameters: expected '{NETWORK}' or '{RULE}', found {self.parameters!r}")
        if self.optimizer not in ("plain", "momentum", "adam", TRUST_REGION):
            expected = f"'plain', 'momentum', 'adam' or '{TRUST_REGION}'"
            raise ValueError(f"optimizer: expected {expected}, found {self.optimizer!r}")
        check_range(self, "modules_per_direction", "cloned_modules", "cloning_epochs", at_least=1)
        check_range(self, "noise", "learning_rate", "radius", "score_offset", over=0)
        check_range(self, "score_exponent", at_least=0, at_most=1)
        check_range(self, "momentum", "averaging", at_least=0, below=1)


def build(run: TrainingRun, configs: AlgorithmConfigs) -> Algorithm:
    """Raises ConfigError if rollouts do not come in pairs, the backend keeps too few policies, or there is no rule."""
    if run.config.rollouts_per_module % 2:
        raise ConfigError(
            "train_eval.rollouts_per_module: expected an even number, for pairs along a direction and against it, "
            f"found {run.config.rollouts_per_module}"
        )
    config = configs.get(ESConfig)
    if config.optimizer == TRUST_REGION and run.config.rollouts_per_module < 4:
        raise ConfigError(
            f"train_eval.rollouts_per_module: expected at least 4 with es.optimizer = '{TRUST_REGION}', which tries "
            f"its last step as one of the directions, found {run.config.rollouts_per_module}"
        )
    if run.config.backend == "development":
        raise ConfigError(
            "train_eval.backend: expected 'auto', 'plugin' or 'channel', found 'development', for which each of the "
            "many policies of es would be converted to TFLite"
        )
    if config.parameters == RULE:
        rule = run.problem.decision.rule
        if rule is None:
            raise ConfigError(f"es.parameters: expected '{NETWORK}' for {run.problem.name}, which has no rule")
        from compiler_opt.rl.algorithms.es.rule import RuleES

        return RuleES(run, rule, config)
    from compiler_opt.rl.algorithms.es.network import NetworkES

    return NetworkES(run, config)


ALGORITHM = AlgorithmEntry({"es": ESConfig}, build, takes_recurrence=True)
