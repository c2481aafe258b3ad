r"""Reduces what a policy of register allocation decides in a module to the decisions that make the compiler fail.

    compiler_opt reduce_decisions --data_path=$CORPUS --module=NAME --policy_path=$POLICY \
      --output_path=decisions.json

It records the decisions that differ from the default's, and leaves out as many as it can, so that the compiler still
fails or, if it does not, the module's score still rises by half as much. `--baseline` takes the decisions of a
baseline, such as `random`; `--decisions` takes a file that this command wrote, and with `--replay` only says what its
decisions do. docs/regalloc.md has an example.
"""

from absl import flags

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.evaluate import baselines
from compiler_opt.evaluation.reduction import Reducer
from compiler_opt.files import check_writable, printable, shown
from compiler_opt.policies.decisions import Decisions, provenance
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import AnyProblem
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
    decisions = _decisions(problem)
    policy = None if decisions is not None else _policy(problem)
    corpus = _CORPUS.load(settings["problem_config"])
    modules = [module for module in corpus.modules if module.name == _MODULE.value]
    if not modules:
        raise ConfigError(f"--module={_MODULE.value}: the corpus has no module of that name")
    output = _OUTPUT_PATH.value
    if output is not None:
        check_writable(output)
    toolchain = shared_flags.compiler(shared_flags.clang(_CLANG_PATH, settings["command"].clang_path), corpus)
    reducer = Reducer(modules[0], problem, toolchain, settings["rollout"])
    if decisions is not None:
        changes = dict(decisions)
        echo(f"{_MODULE.value}: {len(changes)} changed decisions of {_DECISIONS.value}")
    else:
        assert policy is not None
        recorded = reducer.record(policy, _SEED.value)
        changes, total = recorded.changes, recorded.num_decisions
        echo(f"{_MODULE.value}: {len(changes)} of {total} decisions of {policy.name} differ from the default's")
    if _REPLAY.value or output is None:
        echo(reducer.outcome(changes).describe())
        return
    reduction = reducer.reduce(changes, min_rise=_MIN_RISE.value, max_compiles=_MAX_COMPILES.value)
    echo(f"all of them: {reduction.effect.describe()}")
    left = "none can be left out" if reduction.is_minimal else "all compilations are used up"
    echo(f"{len(reduction.changes)} are left after {reduction.num_compiles} compilations; {left}")
    echo(f"these: {reduction.remaining.describe()}")
    lines = [
        f"{site.ordinal} of {site.caller}: {advice:g} instead of {reduction.defaults.get(site, advice):g}"
        for site, advice in reduction.changes.items()
    ]
    echo("\n".join(entry_point.first_of("  decision", lines, _SHOWN)))
    about = {
        **provenance(problem.name, toolchain.version),
        "module": _MODULE.value,
        "compiler": toolchain.version_text,
        "effect": reduction.remaining.describe(),
    }
    Decisions(reduction.changes, about).save(output)
    print(f"decisions: {output}")


def _decisions(problem: AnyProblem) -> Decisions | None:
    """The decisions of `--decisions`; raises ConfigError if they are for another problem or module."""
    if _DECISIONS.value is None:
        return None
    decisions = Decisions.load(_DECISIONS.value)
    for flag, name, expected in (("--compile_task", "problem", problem.name), ("--module", "module", _MODULE.value)):
        found = decisions.about.get(name)
        if found != expected:
            raise ConfigError(f"{_DECISIONS.value}: has decisions for {shown(found)}; give {flag}={printable(found)}")
    return decisions


def _policy(problem: AnyProblem) -> Policy:
    if _BASELINE.value is not None:
        [policy] = baselines(problem, [_BASELINE.value])
        return policy
    return problem.decision.load_policy(pretrained.folder(_POLICY_PATH.value))


if __name__ == "__main__":
    entry()
