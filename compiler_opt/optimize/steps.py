"""Steps of an optimisation for whatever objective; finished steps are not repeated, interrupted ones continue."""

import dataclasses
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.extract import extract
from compiler_opt.corpus.making.writing import write_description
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError
from compiler_opt.optimize.optimization import DECISIONS, SEARCH, Optimization
from compiler_opt.optimize.program import (
    EMBED_BITCODE,
    Compilers,
    TestRun,
    Variant,
    targets_of_tests,
    training_objects,
)
from compiler_opt.optimize.results import Tests
from compiler_opt.optimize.state import Record, checksum
from compiler_opt.optimize.suites import CommandSuite
from compiler_opt.optimize.target_sizes import TargetSize, measure
from compiler_opt.optimize.verdict import judge, tests_of
from compiler_opt.pass_options.sets import OptionSets, describe_sets
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search import function_options as by_function
from compiler_opt.search.search import SearchSettings

DEPLOYMENT = "deployment"
"""The step that makes compilers."""

_MAX_FAILURES_SHOWN = 5
_WARNING = re.compile(r"warning: mlgo.*")


@dataclasses.dataclass(frozen=True)
class Searched:
    """A search.

    Attributes:
      minutes: that were asked for.
      decisions: that were found.
      compiles: of modules.
      hot_functions: that were searched, if the objective is speed.
    """

    minutes: float
    decisions: int
    compiles: int
    hot_functions: int = 0


def make_corpus(run: Optimization) -> Corpus:
    """Builds the program with bitcode and extracts a corpus, one project for each file that is linked; the first step.

    Its modules are compiled with the options of the settings.
    """
    folder, program, bitcode = run.folder / "corpus", run.program, run.variant("bitcode", *EMBED_BITCODE)

    def work(record: Record) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        targets = program.targets(bitcode)
        testing = targets_of_tests(targets, program.test_programs(bitcode))
        objects = training_objects(program.sources(bitcode), targets, testing)
        if not objects:
            raise ConfigError(f"{program.name}: no target has objects of C or C++; there is nothing to optimise")
        with progress_bar(total=len(objects), description="extracting", unit="object") as bar:
            extraction = extract(objects, folder, num_workers=run.settings.jobs, progress=bar.update)
        version = Corpus.load(folder).compiler_version()
        groups = sorted({name.partition("/")[0] for name in extraction.modules})
        write_description(folder, extraction.modules, projects=groups, version=version)
        run.echo(
            f"{len(extraction.modules)} modules of {len(targets)} targets"
            + (f"; left out: {', '.join(sorted(testing))}, only used by tests" if testing else "")
        )
        for _, reason in extraction.failures[:_MAX_FAILURES_SHOWN]:
            run.echo(f"left out: {reason}")

    run.heading(1, f"Bitcode: {program.name}, built with {run.toolchain.version_text}")
    build(run, bitcode)
    run.state.do("corpus", type(None), work, after=[bitcode.folder.name])
    corpus, options = Corpus.load(folder, trusted=run.settings.trust_corpus), run.settings.pass_options
    modules = tuple(options.apply(module, run.toolchain) for module in corpus.modules)
    if options:
        run.echo(f"options of LLVM's passes: {describe_sets(modules)}")
    return dataclasses.replace(corpus, modules=modules)


def build(run: Optimization, variant: Variant, inputs: Sequence[object] = (), after: Collection[str] = ()) -> str:
    """Builds a variant of the program; returns the first warning about an object compiled without the policy, or "".

    `inputs` and `after` tell what its compilers do, besides their options.
    """

    def work(record: Record) -> str:
        build_now(run, variant, record)
        # The drivers warn if they compile anything without the policy.
        log = variant.log("build")
        warning = _WARNING.search(log.read_text(errors="replace")) if log.is_file() else None
        return warning[0] if warning else ""

    name = variant.folder.name
    return run.state.do(name, str, work, inputs=[dataclasses.replace(variant, folder=Path()), *inputs], after=after)


def build_now(run: Optimization, variant: Variant, record: Record) -> None:
    """Builds a variant, as a part of the step with this record; goes on with a build that its last attempt began."""
    if not record.continues:
        shutil.rmtree(variant.folder, ignore_errors=True)
    run.program.prepare(variant)
    with progress_bar(total=None, description=variant.folder.name, unit="step") as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        run.program.build(variant, report)
    record.compiles = len(run.program.sources(variant))


def build_optimized(run: Optimization, compilers: Compilers, *options: str, inputs: Sequence[object] = ()) -> Variant:
    """Builds the program with the compilers that were deployed."""
    variant = run.variant("optimized", *options, compilers=compilers)
    if warning := build(run, variant, inputs, [DEPLOYMENT]):
        run.notes.append(f"Parts of the optimised build were compiled without the policy: {warning}")
    return variant


def search(
    run: Optimization, inputs: Sequence[object], budget: int, find: Callable[[SearchSettings, Path], Searched]
) -> Searched:
    """Searches for decisions for as long as the settings say, and goes on if an earlier search was shorter.

    They depend on the corpus and on `inputs`. `budget` is in compiles a module. `find` searches, and writes a decision
    file, beside its own state, into the folder.
    """
    settings, folder = run.settings, run.folder / SEARCH

    def work(record: Record) -> Searched:
        if not record.continues:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        # An interrupted search has used some of its time.
        left = max(0.0, settings.search_minutes - record.wall_s / 60)
        found = find(
            SearchSettings(budget=budget, max_minutes=left, seed=settings.seed, min_modules=settings.jobs), folder
        )
        record.compiles = found.compiles
        return found

    return run.state.do(
        SEARCH,
        Searched,
        work,
        inputs=inputs,
        after=["corpus"],
        outputs=[run.folder / DECISIONS],
        is_enough=lambda found: found.minutes >= settings.search_minutes,
    )


def deploy_compilers(
    run: Optimization,
    request: PolicyRequest | None,
    decisions: Path | None,
    options: OptionSets,
    function_options: Path | None = None,
) -> Compilers:
    """Makes compiler drivers that run a policy, if any, with options, and replay decisions if there is a file of them.

    `function_options` is a file of `search.function_options`.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the plugin cannot be built (the message names the missing package).
    """
    compilers = _drivers(run, deployed(run))
    folder, levels = (request.folder, request.levels) if request is not None else (None, None)
    policy = NetworkWeights.load(folder).checksum() if folder is not None else None

    def work(record: Record) -> None:
        deploy_now(run, deployed(run), request, decisions, options, function_options)

    inputs = [policy, levels, checksum(decisions), options.levels, options.targets, checksum(function_options)]
    run.state.do(DEPLOYMENT, type(None), work, inputs=inputs, outputs=[compilers.c, compilers.cxx])
    run.echo(str(compilers.c.parent))
    return compilers


def deploy_now(
    run: Optimization,
    output: Path,
    request: PolicyRequest | None,
    decisions: Path | None,
    options: OptionSets,
    function_options: Path | None,
) -> Compilers:
    """Makes compiler drivers in a folder, as a part of a step; see `deploy_compilers`."""
    shutil.rmtree(output, ignore_errors=True)
    deploy(
        [request] if request is not None else [],
        output,
        [run.toolchain.clang],
        decisions=[decisions] if decisions is not None else [],
        options=options,
        function_options=by_function.load(function_options) if function_options is not None else None,
    )
    return _drivers(run, output)


def _drivers(run: Optimization, output: Path) -> Compilers:
    folder = output / "bin"
    return Compilers(folder / "mlgo-clang", folder / "mlgo-clang++", run.toolchain.tool("llvm-ar"))


def deployed(run: Optimization) -> Path:
    """Where the compiler drivers are deployed."""
    return run.folder / "deployed"


def run_tests(run: Optimization, optimized: Variant) -> Tests:
    """Runs the project's tests in the default and in this build, and finds out why tests fail, if there are tests."""
    command = run.settings.test_command
    suite = CommandSuite(command) if command else run.program.test_suite(run.default)
    if suite is None or command == ():
        run.echo("the project registers no tests with CTest; give a command by --test_command")
        return Tests()
    variants = run.default, optimized

    def tested(variant: Variant) -> TestRun:
        name = tests_of(variant)
        result = run.state.do(
            name, TestRun, lambda record: suite.run(variant, variant.log("tests")), after=[variant.folder.name]
        )
        run.echo(f"{name}: {'passed' if result.passed else 'FAILED'} ({result.summary})")
        return result

    runs = tested(run.default), tested(optimized)
    return Tests(runs, judge(run, suite, variants, runs))


def sizes(run: Optimization, optimized: Variant) -> tuple[TargetSize, ...]:
    """Linked text of every target in the default and in this build."""
    return measure(run.program, run.default, optimized, run.toolchain.tool("ld.lld"))


def compiler_facts(run: Optimization) -> dict[str, str]:
    """The compiler, as text."""
    return {
        "Compiler": f"{run.toolchain.version_text} ({run.toolchain.target})",
        "Options": " ".join(run.default.options),
    }


def provenance(run: Optimization, corpus: Corpus) -> Mapping[str, str]:
    """The compiler and what it compiled, as text."""
    return compiler_facts(run) | {
        "Options of LLVM's passes": describe_sets(corpus.modules),
        "Corpus": f"{len(corpus.modules)} modules, linked into {', '.join(corpus.projects())}",
    }
