"""The step that searches, from the policy, for single decisions that make the program smaller."""

import shutil
from pathlib import Path

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.optimize.context import DECISIONS, SEARCH, OptimizationContext
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.search import report
from compiler_opt.search.program_search import search
from compiler_opt.search.progress_bar import search_bar
from compiler_opt.search.search import SearchSettings

_BUDGET = 1000
"""Compiles a module; the time ends most searches before."""


def search_decisions(context: OptimizationContext, corpus: Corpus, policy_dir: Path) -> Path | None:
    """Searches from the policy for as long as the settings say; returns the decision file, None without a search.

    A search that is done goes on if it was shorter than asked for now.

    Raises:
      CompilerOptError: see `search`.
    """
    minutes, state, folder = context.settings.search_minutes, context.state, context.folder / SEARCH
    policy = NetworkWeights.load(policy_dir).checksum()
    context.heading(4, f"Search: {minutes:g} minutes, from the policy" if minutes else "Search: none")
    if not minutes:
        if SEARCH in state.steps:
            context.forget_results(SEARCH)
        return None
    searched = state.steps.get(SEARCH)
    if searched is not None and searched.result.get("policy") != policy:
        # The state of a search is of no use to another policy.
        context.forget_results(SEARCH)
        searched = None
    if searched is None:
        shutil.rmtree(folder, ignore_errors=True)
    elif searched.done and searched.result["minutes"] >= minutes:
        context.echo("done before")
        return context.folder / DECISIONS
    else:
        context.forget_results()
    with state.step(SEARCH) as step:
        # An interrupted search has used some of its time.
        step.result = {"minutes": minutes, "policy": policy}
        state.save()
        folder.mkdir(parents=True, exist_ok=True)
        base = context.problem.decision.load_policy(policy_dir)
        toolchain = with_plugin_features(context.toolchain, base.plugin_features)
        targets = {name: [module.name for module in modules] for name, modules in corpus.projects().items()}
        with search_bar(None) as bar, WorkerPool(toolchain, context.problem, context.settings.jobs) as pool:
            bar.begin(context.program.name)
            found = search(
                corpus.modules,
                base,
                pool,
                context.problem,
                toolchain,
                SearchSettings(
                    budget=_BUDGET,
                    max_minutes=max(0.0, minutes - step.wall_s / 60),
                    seed=context.settings.learning.training.seed,
                    min_modules=context.settings.jobs,
                ),
                name=context.program.name,
                targets=targets,
                folder=folder,
                on_progress=bar.show,
            )
        report.write(found, folder)
        step.result |= {"compiles": found.compiles, "decisions": len(found.decisions)}
        before, after = (
            sum(sizes.values()) for sizes in (found.confirmed.base_linked_bytes, found.confirmed.linked_bytes)
        )
        change = f"{after / before - 1:+.2%}" if before else "nothing"
        context.echo(f"{len(found.decisions)} decisions after {found.compiles} compilations: {change} of linked text")
    return context.folder / DECISIONS
