"""The steps that deploy and build, until no main target is larger than plain clang makes it.

A search confirms what it finds by linking objects of the corpus. What users link may differ: a shared library has names
and relocations, and a source may be compiled for several targets. So the targets themselves have the last word:

    0 policy, decisions and options of LLVM's passes as found, also of single functions
    1 where a target is larger, clang's own decisions are replayed in all modules that are linked with it
      the same without the options, if there are any
    2 clang's own decisions everywhere, without the options
"""

import dataclasses
import functools
from pathlib import Path

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.files import replaced_folder
from compiler_opt.optimize import steps
from compiler_opt.optimize.optimization import Optimization
from compiler_opt.optimize.program import Variant, link_groups, targets_of_tests
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.optimize.target_sizes import main
from compiler_opt.policies.decisions import Base, Decisions, Site, provenance
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PoolCompiler

FALLBACK = "fallback"
"""The step, and folder, of what replaces decisions that make a target larger."""

_EVERYWHERE = 2


@dataclasses.dataclass(frozen=True)
class Fallback:
    """How far it has fallen back.

    Attributes:
      level: of those above.
      targets: that were larger.
      keeps_options: whether options are left.
    """

    level: int = 0
    targets: tuple[str, ...] = ()
    keeps_options: bool = True

    def note(self, had_options: bool) -> str:
        """A sentence about where clang's own decisions are kept."""
        where = "everywhere" if self.level == _EVERYWHERE else "in all that is linked with them"
        dropped = ", and no options of LLVM are set" if had_options and not self.keeps_options else ""
        return (
            f"Larger with the policy than without: {', '.join(self.targets)}. So clang's own decisions are kept "
            f"{where}{dropped}."
        )


def build_without_growth(
    run: Optimization, corpus: Corpus, policy_dir: Path, decisions: Path | None, function_options: Path | None = None
) -> Variant:
    """Deploys policy and decisions, builds both variants, and falls back where a main target is larger than before.

    `function_options` is a file of `search.function_options`.

    Raises:
      CompilerOptError: see `deploy_compilers`, `build` and `measure`.
    """
    run.heading(5, "Deployment: mlgo-clang and mlgo-clang++ with the policy")
    folder = run.folder / FALLBACK
    inputs = [NetworkWeights.load(policy_dir).checksum(), checksum(decisions), checksum(function_options)]
    done = run.state.find(FALLBACK, Fallback, inputs=inputs, after=["corpus"]) or Fallback()
    is_first = True
    while True:
        deployed, replayed = policy_dir, decisions
        if done.level == _EVERYWHERE:
            deployed, replayed = folder / "policy", None
        elif done.level:
            replayed = folder / "decisions.json"
        options = run.settings.pass_options if done.keeps_options else NO_OPTIONS
        by_function = function_options if done.keeps_options else None
        compilers = steps.deploy_compilers(run, PolicyRequest(deployed), replayed, options, by_function)
        if is_first:
            run.heading(6, "Builds: plain clang -Oz, and with the policy")
            steps.build(run, run.default)
        is_first = False
        optimized = steps.build_optimized(run, compilers)
        sizes = main(steps.sizes(run, optimized))
        grown = [size.name for size in sizes if size.optimized_bytes > size.default_bytes]
        if not grown or done.level == _EVERYWHERE:
            if done.level:
                run.notes.append(done.note(had_options=bool(run.settings.pass_options)))
            return optimized
        run.echo(f"larger than with plain clang: {', '.join(grown)}; there, clang's own decisions are kept")
        level = _EVERYWHERE if done.level and not options else 1
        done = Fallback(level, tuple(dict.fromkeys([*done.targets, *grown])), keeps_options=not done.level)
        work = functools.partial(_fall_back, run, corpus, policy_dir, decisions, done)
        run.state.do(FALLBACK, Fallback, work, inputs=inputs, after=["corpus"], is_enough=lambda found: False)


def _fall_back(
    run: Optimization, corpus: Corpus, policy_dir: Path, decisions: Path | None, to: Fallback, record: Record
) -> Fallback:
    """Writes the policy that keeps the default, or clang's own decisions in all that is linked with the targets."""
    folder = run.folder / FALLBACK
    folder.mkdir(exist_ok=True)
    if to.level == _EVERYWHERE:
        with replaced_folder(folder / "policy") as new:
            NetworkWeights.keeping_default(PROBLEM.decision.feature_names[0]).save(new)
        return to
    options = run.settings.pass_options if to.keeps_options else NO_OPTIONS
    targets = run.program.targets(run.default)
    testing = targets_of_tests(targets, run.program.test_programs(run.default))
    groups = link_groups([target for target in targets if target.name not in testing])
    affected = {groups[name] for name in to.targets}
    modules = [options.apply(each, run.toolchain) for each in corpus.modules if each.project in affected]
    kept: dict[Site, int] = {}
    with WorkerPool(run.toolchain, PROBLEM, run.settings.jobs) as pool:
        compiled = PoolCompiler(pool, modules, DefaultPolicy(PROBLEM)).compile({n: {} for n in range(len(modules))})
    for _, each in sorted(compiled.items()):
        if isinstance(each, Compiled):
            kept |= zip(each.sites, each.advice, strict=True)
    own = Decisions(kept, provenance(PROBLEM.name, run.toolchain.version, Base(NetworkWeights.load(policy_dir))))
    (own if decisions is None else Decisions.load(decisions).merged(own)).save(folder / "decisions.json")
    return to
