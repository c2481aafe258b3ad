r"""Reduces what a policy of register allocation decides in a module to the decisions that make the compiler fail.

    python -m compiler_opt.tools.reduce_decisions --data_path=$CORPUS --module=NAME --policy_path=$POLICY \
      --output_path=decisions.json

It records the decisions that differ from the default's, and leaves out as many as it can, so that the compiler still
fails or, if it does not, the module's score still rises by half as much. `--baseline` takes the decisions of a
baseline, such as `random`; `--decisions` takes a file that this command wrote, and with `--replay` only says what its
decisions do. docs/regalloc.md has an example.
"""

from absl import flags

from compiler_opt import pretrained
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.evaluate import baselines
from compiler_opt.evaluation.reduction import Outcome, Reducer
from compiler_opt.files import check_writable
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.changed_decisions import ChangedDecision, DecisionRecord
from compiler_opt.policies.policy import Policy
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.tools import entry_point, gin_settings, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(module_filter=False)
_MODULE = flags.DEFINE_string("module", None, "The module's name in the corpus.", required=True)
_POLICY_PATH = shared_flags.policy("policy_path", "The policy whose decisions to reduce.")
_BASELINE = flags.DEFINE_string("baseline", None, "A baseline whose decisions to reduce, such as random.")
_DECISIONS = shared_flags.path("decisions", "A file of this command, whose decisions to reduce or replay.")
_REPLAY = flags.DEFINE_bool("replay", False, "Only say what the decisions of --decisions do.")
_OUTPUT_PATH = shared_flags.path("output_path", "JSON file for the decisions that are left.")
_MIN_RISE = flags.DEFINE_float(
    "min_rise", None, "The rise of the score that must remain, such as 0.01; by default half of all decisions'.", 0.0
)
_MAX_COMPILES = flags.DEFINE_integer("max_compiles", 500, "How many compilations to use at most.", 1)
_SEED = shared_flags.seed("a baseline that samples")
_COMPILE_TASK = shared_flags.TaskFlag("that of the gin files, or regalloc_eviction")
_CLANG_PATH = shared_flags.clang_path()
_GIN = gin_settings.GinFlags("Gin files; settings of rollout and problem_config apply here.")
_SHOWN = 10


@entry_point.command
def entry() -> None:
    sources = {"--policy_path": _POLICY_PATH.value, "--baseline": _BASELINE.value, "--decisions": _DECISIONS.value}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise ConfigError(f"expected one of {', '.join(sources)}, found {' and '.join(given) or 'none'}")
    if _REPLAY.value and _DECISIONS.value is None:
        raise ConfigError("--replay: expected --decisions")
    if not _REPLAY.value and _OUTPUT_PATH.value is None:
        raise ConfigError("--output_path: expected the name of a JSON file")
    settings = _GIN.read(gin_settings.of_compilations())
    in_gin = settings["command"].compile_task
    problem = _COMPILE_TASK.load(in_gin, None if in_gin else lambda: problems.load("regalloc_eviction"))
    record = _record(problem)
    policy = None if record is not None else _policy(problem)
    corpus = _CORPUS.load(settings["problem_config"])
    modules = [module for module in corpus.modules if module.name == _MODULE.value]
    if not modules:
        raise ConfigError(f"--module={_MODULE.value}: the corpus has no module of that name")
    if _OUTPUT_PATH.value is not None:
        check_writable(_OUTPUT_PATH.value)
    toolchain = probe(shared_flags.clang(_CLANG_PATH, settings["command"].clang_path))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    reducer = Reducer(modules[0], problem, toolchain, settings["rollout"])
    if record is not None:
        changes = list(record.changes)
        echo(f"{_MODULE.value}: {len(changes)} changed decisions of {_DECISIONS.value}")
    else:
        assert policy is not None
        changes, total = reducer.record(policy, _SEED.value)
        echo(f"{_MODULE.value}: {len(changes)} of {total} decisions of {policy.name} differ from the default's")
    if _REPLAY.value:
        echo(reducer.outcome(changes).describe())
        return
    reduction = reducer.reduce(changes, min_rise=_MIN_RISE.value, max_compiles=_MAX_COMPILES.value)
    echo(f"all of them: {reduction.effect.describe()}")
    left = "none can be left out" if reduction.is_minimal else "all compilations are used up"
    echo(f"{len(reduction.changes)} are left after {reduction.num_compiles} compilations; {left}")
    echo(f"these: {reduction.remaining.describe()}")
    echo("\n".join(entry_point.first_of("  decision", [_line(change) for change in reduction.changes], _SHOWN)))
    _save(problem, toolchain, reduction.changes, reduction.remaining)


def _record(problem: AnyProblem) -> DecisionRecord | None:
    """The record of `--decisions`; raises ConfigError if it is of another problem or module."""
    if _DECISIONS.value is None:
        return None
    record = DecisionRecord.load(_DECISIONS.value)
    for flag, found, expected in (
        ("--compile_task", record.problem, problem.name),
        ("--module", record.module, _MODULE.value),
    ):
        if found != expected:
            raise ConfigError(f"{_DECISIONS.value}: has decisions for {found!r}; give {flag}={found}")
    return record


def _policy(problem: AnyProblem) -> Policy:
    if _BASELINE.value is not None:
        [policy] = baselines(problem, [_BASELINE.value])
        return policy
    return problem.decision.load_policy(pretrained.folder(_POLICY_PATH.value))


def _line(change: ChangedDecision) -> str:
    return f"{change.decision} of {change.function}: {change.advice:g} instead of {change.default:g}"


def _save(problem: AnyProblem, toolchain: Toolchain, changes: tuple[ChangedDecision, ...], effect: Outcome) -> None:
    output = _OUTPUT_PATH.value
    assert output is not None  # checked before the work
    about = {"compiler": toolchain.version_text, "effect": effect.describe()}
    DecisionRecord(problem.name, _MODULE.value, changes, about).save(output)
    print(f"decisions: {output}")


if __name__ == "__main__":
    entry()
