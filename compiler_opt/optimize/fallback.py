"""The steps that deploy and build, until no main target is larger than plain clang makes it.

A search confirms what it finds by linking objects of the corpus. What users link may differ: a shared library has names
and relocations, and a source may be compiled for several targets. So the targets themselves have the last word:

    0 policy, decisions and options of LLVM's passes as found
    1 where a target is larger, clang's own decisions are replayed in all modules that are linked with it
      the same without the options, if there are any
    2 clang's own decisions everywhere, without the options
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.pass_options import NO_OPTIONS
from compiler_opt.files import replaced_folder
from compiler_opt.optimize import steps
from compiler_opt.optimize.context import FALLBACK, OptimizationContext
from compiler_opt.optimize.program import Variant, link_groups, targets_of_tests
from compiler_opt.optimize.results import measure
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.decisions import Base, Decisions, Site, provenance
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
        done = _done(context)
        level, options = int(done["level"]), context.settings.pass_options if done["options"] else NO_OPTIONS
        deployed, replayed = policy_dir, decisions
        if level == _EVERYWHERE:
            deployed, replayed = folder / "policy", None
        elif level:
            replayed = folder / "decisions.json"
        optimized = context.variant("optimized", steps.deploy_policy(context, deployed, replayed, options))
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
            keeps_options, targets = level == 0, list(dict.fromkeys([*done["targets"], *grown]))
            if level and not options:
                level = _EVERYWHERE
                with replaced_folder(folder / "policy") as new:
                    NetworkWeights.keeping_default(context.problem.decision.feature_names[0]).save(new)
            else:
                level = 1
                kept = options if keeps_options else NO_OPTIONS
                own = _replaced(context, corpus, kept, policy_dir, decisions, targets, default)
                own.save(folder / "decisions.json")
            step.result = {"level": level, "targets": targets, "options": keeps_options}
        context.forget_deployment()


def note(context: OptimizationContext) -> str | None:
    """A sentence about where clang's own decisions are kept; None if they are nowhere."""
    done = _done(context)
    if not done["level"]:
        return None
    where = "everywhere" if done["level"] == _EVERYWHERE else "in all that is linked with them"
    dropped = context.settings.pass_options and not done["options"]
    return (
        f"Larger with the policy than without: {', '.join(done['targets'])}. So clang's own decisions are kept "
        f"{where}{', and no options of LLVM are set' if dropped else ''}."
    )


def _done(context: OptimizationContext) -> Mapping[str, Any]:
    """How far it has fallen back, by the level above; which targets were larger, and whether options are left."""
    step = context.state.steps.get(FALLBACK)
    return {"level": 0, "targets": [], "options": True} | (step.result if step is not None and step.done else {})


def _replaced(
    context: OptimizationContext,
    corpus: Corpus,
    options: OptionSets,
    policy_dir: Path,
    decisions: Path | None,
    grown: list[str],
    default: Variant,
) -> Decisions:
    """The decisions, with clang's own under these options in all that is linked with targets that have grown."""
    program, problem = context.program, context.problem
    targets = program.targets(default)
    testing = targets_of_tests(targets, program.test_programs(default))
    groups = link_groups([target for target in targets if target.name not in testing])
    affected = {groups[name] for name in grown}
    modules = [options.apply(each, context.toolchain) for each in corpus.modules if each.project in affected]
    kept: dict[Site, int] = {}
    with WorkerPool(context.toolchain, problem, context.settings.jobs) as pool:
        compiled = PoolCompiler(pool, modules, DefaultPolicy(problem)).compile({n: {} for n in range(len(modules))})
    for _, each in sorted(compiled.items()):
        if isinstance(each, Compiled):
            kept |= zip(each.sites, each.advice, strict=True)
    base = Base(NetworkWeights.load(policy_dir))
    own = Decisions(kept, provenance(problem.name, context.toolchain.version, base))
    return own if decisions is None else Decisions.load(decisions).merged(own)
