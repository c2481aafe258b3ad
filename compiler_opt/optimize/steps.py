"""The steps of an optimisation; finished steps are not repeated, interrupted ones continue."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt import pretrained
from compiler_opt.checked_values import convert
from compiler_opt.collect.traces import meta_path
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.extract import extract
from compiler_opt.corpus.making.writing import write_description
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import changes
from compiler_opt.optimize.changes import DecisionHashes, Reference
from compiler_opt.optimize.context import SEARCH, OptimizationContext, Step
from compiler_opt.optimize.program import Compilers, TestRun, Variant, targets_of_tests, training_objects
from compiler_opt.optimize.suites import CommandSuite
from compiler_opt.optimize.verdict import Verdict, judge
from compiler_opt.pass_options.sets import OptionSets, describe_sets
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.rl import pipeline
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.default_trace import record_default_trace
from compiler_opt.rl.pipeline import TRACE, TRAINING, PipelineStep

SEEN = "seen"
"""The folder of the program's decisions before training."""

_MAX_FAILURES_SHOWN = 5
_DONE = "done before"
_WARNING = re.compile(r"warning: mlgo.*")


def make_corpus(context: OptimizationContext, bitcode: Variant) -> Corpus:
    """Builds the program with bitcode and extracts a corpus, one project for each file that is linked.

    Its modules are compiled with the options of the settings.
    """
    folder, program = context.folder / "corpus", context.program

    def work(step: Step) -> dict[str, Any]:
        shutil.rmtree(folder, ignore_errors=True)
        targets = program.targets(bitcode)
        testing = targets_of_tests(targets, program.test_programs(bitcode))
        objects = training_objects(program.sources(bitcode), targets, testing)
        if not objects:
            raise ConfigError(f"{program.name}: no target has objects of C or C++; there is nothing to optimise")
        with progress_bar(total=len(objects), description="extracting", unit="object") as bar:
            extraction = extract(objects, folder, num_workers=context.settings.jobs, progress=bar.update)
        version = Corpus.load(folder).compiler_version()
        groups = sorted({name.partition("/")[0] for name in extraction.modules})
        write_description(folder, extraction.modules, projects=groups, version=version)
        context.echo(
            f"{len(extraction.modules)} modules of {len(targets)} targets"
            + (f"; left out: {', '.join(sorted(testing))}, only used by tests" if testing else "")
        )
        for _, reason in extraction.failures[:_MAX_FAILURES_SHOWN]:
            context.echo(f"left out: {reason}")
        return {"modules": len(extraction.modules), "failures": len(extraction.failures)}

    if not context.state.is_done("corpus"):
        build(context, bitcode)
    context.once("corpus", work, message=_DONE)
    corpus, options = Corpus.load(folder, trusted=context.settings.trust_corpus), context.settings.pass_options
    modules = tuple(options.apply(module, context.toolchain) for module in corpus.modules)
    if options:
        context.echo(f"options of LLVM's passes: {describe_sets(modules)}")
    return dataclasses.replace(corpus, modules=modules)


def build(context: OptimizationContext, variant: Variant) -> None:
    """Builds a variant of the program."""
    name = variant.folder.name

    def work(step: Step) -> dict[str, Any]:
        # Leftovers of an earlier step of this name may be of another compiler; an interrupted step continues.
        if not step.result.get("begun"):
            shutil.rmtree(variant.folder, ignore_errors=True)
            step.result["begun"] = True
            context.state.save()
        context.program.prepare(variant)
        with progress_bar(total=None, description=name, unit="step") as bar:

            def report(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            built = context.program.build(variant, report)
        num_objects = len(context.program.sources(variant))
        # The drivers warn if they compile anything without the policy.
        warning = _WARNING.search(built.log.read_text(errors="replace")) if built.log.is_file() else None
        return step.result | {
            "cpu_s": built.cpu_s,
            "objects": num_objects,
            "warning": warning[0] if warning else None,
        }

    context.once(name, work, message=f"{name}: {_DONE}")


def record_decisions(context: OptimizationContext, corpus: Corpus, *, write_trace: bool) -> None:
    """Records the default's decisions: hashes of their features and, to clone them, a trace."""
    problem, toolchain = context.problem, context.toolchain

    if write_trace and not meta_path(context.folder / TRACE).exists():
        context.state.forget("trace")  # Recorded when nothing was to be trained.

    def work(step: Step) -> dict[str, Any]:
        decisions = DecisionHashes(problem.decision.feature_names)
        path = context.folder / TRACE if write_trace else None
        with WorkerPool(toolchain, problem) as pool:
            trace = record_default_trace(corpus, problem, toolchain, pool, path, on_context=decisions.add)
        needed = 2 if context.reused is None and context.settings.trains else 1
        if trace.num_modules < needed:
            raise ConfigError(
                f"the program has {trace.num_modules} modules with inlining decisions, of {len(corpus.modules)}; "
                f"expected at least {needed}"
            )
        hashes, modules = decisions.all(), decisions.modules(module.name for module in corpus.modules)
        Reference(modules, np.unique(hashes), {}).save(context.folder / SEEN)
        context.echo(f"{trace.num_decisions} decisions in {len(corpus.modules)} modules")
        if failures := trace.baseline.failures:
            context.echo(f"{len(failures)} modules failed to compile; the first: {next(iter(failures.values()))}")
        result: dict[str, Any] = {"modules": len(corpus.modules), "decisions": trace.num_decisions}
        if context.reused is not None and context.reused.reference is not None:
            result["changes"] = dataclasses.asdict(changes.compare(context.reused.reference, modules, hashes))
        return result

    context.once("trace", work, message=_DONE)


def train(context: OptimizationContext, corpus: Corpus) -> Path:
    """Clones the default's decisions, unless there is a policy to start from, and trains; returns the policy's folder.

    A training that is done continues if it was shorter than asked for now.
    """
    settings = context.settings.learning
    start = settings.training.warmstart_policy_dir
    shutil.rmtree(context.folder / POLICY_DIR, ignore_errors=True)  # Of an optimisation without training.
    context.heading(2, f"Warm start: {start or 'a network that imitates the decisions of clang -Oz'}")
    if start:
        record_decisions(context, corpus, write_trace=False)
    progress: list[str] = []

    def do_step(step: PipelineStep) -> None:
        if step.name == "trace":
            record_decisions(context, corpus, write_trace=True)
        elif step.name == "training":
            _improve(context, step)
        elif not context.state.is_done(step.name):
            with context.state.step(step.name):
                step.do()
            for line in progress[-1:]:
                context.echo(line)

    trained = pipeline.run(
        context.folder, corpus, context.problem, context.toolchain, settings, echo=progress.append, do_step=do_step
    )
    return trained.policy_dir


def take_policy(context: OptimizationContext, corpus: Corpus) -> Path:
    """Takes the policy to start from as it is or, if there is none, one that keeps the default; returns its folder."""
    start, folder = context.settings.learning.training.warmstart_policy_dir, context.folder / POLICY_DIR
    context.heading(2, "Decisions of clang -Oz")
    record_decisions(context, corpus, write_trace=False)
    context.heading(3, f"Training: none, {start or 'the default'} decides")
    with replaced_folder(folder) as new:
        if start:
            source = pretrained.folder(start)  # Of it, the weights and the card: what else is there may be anything.
            NetworkWeights.load(source).save(new)
            if (card := ModelCard.load(source)) is not None:
                card.save(new)
        else:
            NetworkWeights.keeping_default(context.problem.decision.feature_names[0]).save(new)
    return folder


def _improve(context: OptimizationContext, training: PipelineStep) -> None:
    minutes, state = context.settings.learning.training.max_minutes, context.state
    context.heading(3, f"Training: {minutes:g} minutes of reinforcement learning on this program")
    trained = state.steps.get("training")
    if trained is not None and trained.done and trained.result["minutes"] >= minutes:
        context.echo(_DONE)
        return
    context.forget_results(SEARCH)
    with state.step("training") as step:
        training.do()
        last = read_entries(context.folder / TRAINING / HISTORY_FILE)[0][-1]
        step.result = {
            "minutes": minutes,
            "compiles": int(last["compiles"]),
            "iterations": int(last["iteration"]),
            "reward": float(last["reward_mean"]),
        }
        context.echo(
            f"{last['iteration']} iterations, {last['compiles']} compilations, last reward {last['reward_mean']:+.2%}"
        )


def deploy_policy(
    context: OptimizationContext, policy_dir: Path, decisions: Path | None, options: OptionSets
) -> Compilers:
    """Makes compiler drivers that run the policy with options, and replay decisions if there is a file of them.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the plugin cannot be built (the message names the missing package), or the drivers are gone.
    """
    output = context.folder / "deployed"

    def work(step: Step) -> dict[str, Any]:
        shutil.rmtree(output, ignore_errors=True)
        replayed = [decisions] if decisions is not None else []
        request = PolicyRequest(policy_dir)
        deploy([request], output, [context.toolchain.clang], decisions=replayed, options=options)
        return {}

    context.once("deployment", work, message=_DONE)
    return deployed_compilers(context)


def deployed_compilers(context: OptimizationContext) -> Compilers:
    """The compiler drivers that were deployed; raises ToolchainError if they are gone."""
    drivers = context.folder / "deployed" / "bin"
    compilers = Compilers(drivers / "mlgo-clang", drivers / "mlgo-clang++", context.toolchain.tool("llvm-ar"))
    for path in (compilers.c, compilers.cxx):
        if not path.is_file():
            raise ToolchainError(
                f"{path}: expected a compiler driver, found none; remove {context.folder} and start over"
            )
    context.echo(str(drivers))
    return compilers


def plain_compilers(toolchain: Toolchain) -> Compilers:
    """The compilers without a policy: `clang` for C, even if the user gave `clang++`."""
    sibling = toolchain.clang.with_name(toolchain.clang.name.replace("clang++", "clang"))
    clang = sibling if sibling.is_file() else toolchain.clang
    return Compilers(clang, toolchain.tool("clang++"), toolchain.tool("llvm-ar"))


def run_tests(
    context: OptimizationContext, default: Variant, optimized: Variant
) -> tuple[tuple[TestRun, ...], Verdict | None]:
    """Runs the project's tests in both builds, and finds out why tests fail; returns no runs if there are no tests."""
    command = context.settings.test_command
    suite = CommandSuite(command) if command else context.program.test_suite(default)
    if suite is None or command == ():
        context.echo("the project registers no tests with CTest; give a command by --test_command")
        return (), None

    def run(variant: Variant) -> TestRun:
        name = f"tests of {variant.folder.name}"
        values = context.once(name, lambda step: dataclasses.asdict(suite.run(variant, variant.log("tests"))))
        result = convert(values, TestRun)
        context.echo(f"{name}: {'passed' if result.passed else 'FAILED'} ({result.summary})")
        return result

    runs = run(default), run(optimized)
    return runs, judge(context, suite, default, optimized, runs)
