"""The steps that deploy and build, until no main target is larger than plain clang makes it.

A search confirms what it finds by linking objects of the corpus. What users link may differ: a shared library has names
and relocations, and a source may be compiled for several targets. So the targets themselves have the last word:

    0 policy and decisions as found
    1 where a target is larger, clang's own decisions are replayed in all modules that are linked with it
    2 clang's own decisions everywhere
"""

from pathlib import Path

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.files import replaced_folder
from compiler_opt.optimize import steps
from compiler_opt.optimize.context import FALLBACK, OptimizationContext
from compiler_opt.optimize.program import Variant, link_groups, targets_of_tests
from compiler_opt.optimize.results import measure
from compiler_opt.policies.decisions import Decisions, Site, provenance
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PoolCompiler

_EVERYWHERE = 2


def build_without_growth(
    context: OptimizationContext, corpus: Corpus, policy_dir: Path, decisions: Path | None, default: Variant
) -> Variant:
    """Deploys policy and decisions, builds both variants, and falls back where a main target is larger than before.

    Raises:
      CompilerOptError: see `deploy_policy`, `build` and `measure`.
    """
    context.heading(5, "Deployment: mlgo-clang and mlgo-clang++ with the policy")
    folder = context.folder / FALLBACK
    is_first = True
    while True:
        done = context.state.steps.get(FALLBACK)
        level = int(done.result["level"]) if done is not None and done.done else 0
        if level == _EVERYWHERE:
            policy_dir, decisions = folder / "policy", None
        elif level:
            decisions = folder / "decisions.json"
        optimized = context.variant("optimized", steps.deploy_policy(context, policy_dir, decisions))
        if is_first:
            context.heading(6, "Builds: plain clang -Oz, and with the policy")
            steps.build(context, default)
        is_first = False
        steps.build(context, optimized)
        sizes = measure(context.program, default, optimized, context.toolchain.tool("ld.lld"))
        grown = [size.name for size in sizes if size.role == "main" and size.optimized_bytes > size.default_bytes]
        if not grown or level == _EVERYWHERE:
            return optimized
        context.echo(f"larger than with plain clang: {', '.join(grown)}; there, clang's own decisions are kept")
        with context.state.step(FALLBACK) as step:
            folder.mkdir(exist_ok=True)
            if level:
                with replaced_folder(folder / "policy") as new:
                    NetworkWeights.keeping_default(context.problem.feature_names[0]).save(new)
            else:
                _replaced(context, corpus, policy_dir, decisions, grown, default).save(folder / "decisions.json")
            step.result = {"level": level + 1, "targets": grown}
        context.forget_deployment()


def note(context: OptimizationContext) -> str | None:
    """A sentence about where clang's own decisions are kept; None if they are nowhere."""
    done = context.state.steps.get(FALLBACK)
    if done is None:
        return None
    where = "everywhere" if done.result["level"] == _EVERYWHERE else "in all that is linked with them"
    return (
        f"Larger with the policy than without: {', '.join(done.result['targets'])}. So clang's own decisions are kept "
        f"{where}."
    )


def _replaced(
    context: OptimizationContext,
    corpus: Corpus,
    policy_dir: Path,
    decisions: Path | None,
    grown: list[str],
    default: Variant,
) -> Decisions:
    """The decisions, with clang's own in all modules that are linked with the targets that have grown."""
    program, problem = context.program, context.problem
    targets = program.targets(default)
    testing = targets_of_tests(targets, program.test_programs(default))
    groups = link_groups([target for target in targets if target.name not in testing])
    affected = {groups[name] for name in grown}
    modules = [module for module in corpus.modules if module.project in affected]
    kept: dict[Site, int] = {}
    with WorkerPool(context.toolchain, problem, context.settings.jobs) as pool:
        compiled = PoolCompiler(pool, modules, DefaultPolicy(problem)).compile({n: {} for n in range(len(modules))})
    for _, each in sorted(compiled.items()):
        if isinstance(each, Compiled):
            kept |= zip(each.sites, each.advice, strict=True)
    native = problem.native_form(NetworkWeights.load(policy_dir))
    own = Decisions(kept, provenance(problem.name, context.toolchain.version, native))
    return own if decisions is None else Decisions.load(decisions).merged(own)
