"""Makes one program smaller, in seven steps, each of which continues after an interruption.

    1 build with bitcode, extract a corpus         5 deploy policy and decisions
    2 trace, vocabulary, warm start                6 build without and with them, run the tests
    3 train                                        7 measure, report
    4 search for single decisions

If a target is larger with policy and decisions than without, steps 5 and 6 are repeated, with clang's own decisions
there.

With a policy to start from, step 2 trains no warm start, and step 3 may be left out. With a policy to reuse, steps 2
and 3 only find out how much of the program is new to it, and step 4 takes the decisions that were found with it, if
any.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt import pretrained
from compiler_opt.checked_values import convert
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.plugin_features import check_observed
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import fallback, steps
from compiler_opt.optimize.changes import Changes, Reference
from compiler_opt.optimize.context import OptimizationContext, OptimizeSettings, ReusedPolicy, State, Step
from compiler_opt.optimize.program import EMBED_BITCODE, Program, TestRun, Variant
from compiler_opt.optimize.results import Cost, Result, TargetSize, measure
from compiler_opt.optimize.searching import search_decisions
from compiler_opt.optimize.verdict import Verdict
from compiler_opt.pass_options.sets import describe_sets
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.tensorflow_loading import require_tensorflow


def optimize(
    program: Program, toolchain: Toolchain, settings: OptimizeSettings, echo: Callable[[str], Any] = print
) -> Result:
    """Makes one program smaller, built with the clang of `toolchain`; `echo` prints lines about the progress.

    Raises:
      CompilerOptError: an error that the user can fix; the same call then continues.
    """
    problem = problems.load("inlining")
    features = toolchain.require(problem.decision.advisor.problem).feature_names
    for tool in ("clang++", "ld.lld", "llvm-ar"):
        toolchain.tool(tool)
    reused = ReusedPolicy.find(settings.reuse_policy) if settings.reuse_policy is not None else None
    given = str(reused.policy_dir) if reused is not None else settings.learning.training.warmstart_policy_dir
    if reused is None and settings.trains:
        require_tensorflow("training a policy (without --reuse_policy, with less --search_minutes than --minutes)")
    if given:
        policy = problem.decision.load_policy(pretrained.folder(given))
        policy.check(features)
        check_observed((spec.name for spec in toolchain.problems["inlining"].features), policy.weights.features, given)
    if settings.reuse_policy is not None and settings.reuse_policy.resolve() == settings.output.resolve():
        raise ConfigError(f"{settings.output}: holds the policy; give another folder as --output")
    check_folder_writable(settings.output)
    # Otherwise a plugin that cannot be built would show only on deployment, an hour later.
    inliner_plugin(toolchain)
    with exclusive_directory(settings.output, "--output"):
        folder = settings.output.absolute()
        state = State(folder, _identity(program, toolchain, settings, reused), start_over=reused is not None)
        if reused is not None and state.is_done("report"):
            state.forget(*tuple(state.steps))  # The next nightly build.
        return _run(OptimizationContext(program, toolchain, problem, settings, folder, reused, state, echo))


def _identity(
    program: Program, toolchain: Toolchain, settings: OptimizeSettings, reused: ReusedPolicy | None
) -> dict[str, str]:
    """The properties that must be the same for an optimisation to continue."""
    identity = settings.identity(program, toolchain)
    if reused is not None:
        return identity | {"policy": str(reused.policy_dir)}
    return identity | {"settings of the training": settings.changed_settings}


def _run(context: OptimizationContext) -> Result:
    plain = steps.plain_compilers(context.toolchain)
    default = context.variant("default", plain)
    for note in context.program.notes(context.settings.level):
        context.echo(note)
    context.heading(1, f"Bitcode: {context.program.name}, built with {context.toolchain.version_text}")
    corpus = steps.make_corpus(context, context.variant("bitcode", plain, *EMBED_BITCODE))
    if context.reused is None:
        policy_dir = steps.train(context, corpus) if context.settings.trains else steps.take_policy(context, corpus)
    else:
        policy_dir = context.reused.policy_dir
        context.heading(2, "Changes: what is new to the policy")
        steps.record_decisions(context, corpus, write_trace=False)
        context.heading(3, f"Training: none, {policy_dir} is reused")
    if context.reused is not None and context.reused.decisions is not None:
        decisions: Path | None = context.reused.decisions
        context.heading(4, f"Search: none, {decisions} is reused")
    else:
        decisions = search_decisions(context, corpus, policy_dir)
    optimized = fallback.build_without_growth(context, corpus, policy_dir, decisions, default)
    tests, verdict = steps.run_tests(context, default, optimized)
    context.heading(7, "Report: linked text, before and after")
    return _report(context, corpus, policy_dir, (default, optimized), tests, verdict)


def _report(
    context: OptimizationContext,
    corpus: Corpus,
    policy_dir: Path,
    variants: tuple[Variant, Variant],
    tests: tuple[TestRun, ...],
    verdict: Verdict | None,
) -> Result:
    default, optimized = variants

    def work(step: Step) -> dict[str, Any]:
        measured = measure(context.program, default, optimized, context.toolchain.tool("ld.lld"))
        return {"sizes": [dataclasses.asdict(size) for size in measured]}

    if context.state.is_done("report") and "sizes" not in context.state.steps["report"].result:
        context.state.forget("report")  # By an earlier version, which measured no parts.
    sizes = tuple(convert(values, TargetSize) for values in context.once("report", work)["sizes"])
    if not any(size.role == "main" for size in sizes):
        raise CorpusError(f"{default.folder}: the build made no program or library")
    recorded = context.state.steps["trace"].result
    reference = context.reused.reference if context.reused is not None else None
    notes = list(context.program.notes(context.settings.level))
    if kept := fallback.note(context):
        notes.append(kept)
    if warning := context.state.steps[optimized.folder.name].result.get("warning"):
        notes.append(f"Parts of the optimised build were compiled without the policy: {warning}")
    result = Result(
        program=context.program.name,
        targets=sizes,
        tests=tests,
        costs=_costs(context),
        num_modules=recorded["modules"],
        num_decisions=recorded["decisions"],
        changes=convert(recorded["changes"], Changes) if "changes" in recorded else None,
        trained_change=reference.summary.get("change") if reference is not None else None,
        notes=tuple(notes),
        provenance=_provenance(context, corpus, policy_dir),
        verdict=verdict,
    )
    if context.reused is None:
        trained_on = Reference.load(context.folder / steps.SEEN)
        assert trained_on is not None
        dataclasses.replace(trained_on, summary=result.reference()).save(context.folder)
    return result


def _costs(context: OptimizationContext) -> tuple[Cost, ...]:
    support = context.toolchain.problems[context.problem.decision.advisor.problem]
    costs = []
    for name, step in context.state.steps.items():
        compiles = int(step.result.get("compiles", step.result.get("objects", 0)))
        if name == "trace":
            # Where the default's decision takes the place of a feature, a second compilation records the feature.
            compiles = int(step.result.get("modules", 0)) * (2 if support.default_in_callee_slot else 1)
        costs.append(Cost(name, step.wall_s, step.cpu_s, compiles))
    return tuple(costs)


def _provenance(context: OptimizationContext, corpus: Corpus, policy_dir: Path) -> Mapping[str, str]:
    facts = {
        "Compiler": f"{context.toolchain.version_text} ({context.toolchain.target})",
        "Options": " ".join(context.settings.options),
        "Options of LLVM's passes": describe_sets(corpus.modules),
        "Corpus": f"{len(corpus.modules)} modules, linked into {', '.join(corpus.projects())}",
        "Policy": str(policy_dir),
    }
    for key, value in NetworkWeights.load(policy_dir).metadata.items():
        if isinstance(value, (str, int, float)):
            facts[f"Policy: {key.replace('_', ' ')}"] = str(value)
    return facts
