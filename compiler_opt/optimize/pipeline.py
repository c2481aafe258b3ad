"""The steps of an optimisation, each of which goes on where it was interrupted.

    1 build with bitcode, extract     3 train      5 build twice, run the tests
    2 trace, vocabulary, warm start   4 deploy     6 measure, report

With a policy to start from, 2 makes none. With one to use again, 2 and 3 only look at how much of the program is new to
it.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.extract import extract
from compiler_opt.corpus.making.writing import write_description
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import changes, deployment
from compiler_opt.optimize.changes import Changes, Reference
from compiler_opt.optimize.program import (
    EMBED_BITCODE,
    OPTIMISATION,
    Compilers,
    Program,
    Variant,
    targets_of_tests,
    training_objects,
)
from compiler_opt.optimize.results import Cost, Result, TargetSize, TestRun, measure, run_tests
from compiler_opt.optimize.state import State
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.rl import pipeline
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.pipeline import TRACE, TRAINING, PipelineSettings, PipelineStep

_OPTIONS = (OPTIMISATION, "-fno-lto")
_SHOWN_FAILURES = 5


@dataclasses.dataclass(frozen=True)
class OptimizeSettings:
    """What to do.

    Attributes:
      output: folder for everything.
      learning: how to learn, and for how long (`training.max_minutes`).
      changed_settings: what the user has changed of `learning`, as text; an optimisation continues only with the same.
      reuse_policy: an earlier policy to use again instead: its folder, or that of its optimisation; None to learn.
      test_command: runs the project's own tests, in the build folder; None for what the project registers with CTest.
      jobs: compilers at a time.
      trust_corpus: train with all options of the build, see `corpus.command_line`.
    """

    output: Path
    learning: PipelineSettings
    changed_settings: str = ""
    reuse_policy: Path | None = None
    test_command: tuple[str, ...] | None = None
    jobs: int = 1
    trust_corpus: bool = False


def optimize(
    program: Program, toolchain: Toolchain, settings: OptimizeSettings, say: Callable[[str], Any] = print
) -> Result:
    """Makes one program smaller.

    Args:
      program: which.
      toolchain: the clang that it is to be built with.
      settings: see there.
      say: told what is done, a line at a time.

    Raises:
      CompilerOptError: something that a user can fix; the same call goes on from there.
    """
    problem = problems.load("inlining")
    features = [feature.name for feature in toolchain.require(problem.advisor.problem).features]
    for tool in ("clang++", "ld.lld", "llvm-ar"):
        toolchain.tool(tool)
    reused = _policy_to_reuse(settings.reuse_policy) if settings.reuse_policy is not None else None
    given = str(reused.policy_dir) if reused is not None else settings.learning.training.warmstart_policy_dir
    if given:
        problem.load_policy(Path(given)).check(features)
    if settings.reuse_policy is not None and settings.reuse_policy.resolve() == settings.output.resolve():
        raise ConfigError(f"{settings.output}: holds the policy; give another folder as --output")
    check_folder_writable(settings.output)
    # What would only show when the policy is deployed, an hour later.
    inliner_plugin(toolchain)
    with exclusive_directory(settings.output, "--output"):
        return _Optimization(program, toolchain, settings, reused, say).run()


@dataclasses.dataclass(frozen=True)
class _Reused:
    """An earlier policy, and what is known of it."""

    policy_dir: Path
    reference: Reference | None


def _policy_to_reuse(folder: Path) -> _Reused:
    optimization = folder / TRAINING / POLICY_DIR
    policy_dir = optimization if optimization.is_dir() else folder
    return _Reused(policy_dir.absolute(), Reference.load(folder))


class _Optimization:
    """One run of the steps."""

    def __init__(
        self,
        program: Program,
        toolchain: Toolchain,
        settings: OptimizeSettings,
        reused: _Reused | None,
        say: Callable[[str], Any],
    ):
        self._program = program
        self._toolchain = toolchain
        self._settings = settings
        self._reused = reused
        self._say = say
        self._problem = problems.load("inlining")
        self._output = settings.output.absolute()
        self._plain = deployment.plain_compilers(toolchain)
        self._bitcode = self._variant("bitcode", self._plain, (*_OPTIONS, *EMBED_BITCODE))
        self._default = self._variant("default", self._plain, _OPTIONS)
        self._state = State(self._output, self._identity(), start_over=reused is not None)
        if reused is not None and self._state.is_done("report"):
            self._state.forget(*tuple(self._state.steps))  # The next night.

    def _variant(self, name: str, compilers: Compilers, options: tuple[str, ...]) -> Variant:
        return Variant(self._output / f"build-{name}", compilers, options)

    def _identity(self) -> dict[str, str]:
        return {
            **self._program.identity(),
            "compiler": f"{self._toolchain.clang} {self._toolchain.version_text}",
            "test command": json.dumps(self._settings.test_command),
            **(
                {"policy": str(self._reused.policy_dir)}
                if self._reused is not None
                else {"settings of the training": self._settings.changed_settings}
            ),
        }

    def run(self) -> Result:
        for note in self._program.notes():
            self._say(note)
        self._heading(1, f"Bitcode: {self._program.name}, built with {self._toolchain.version_text}")
        corpus = self._corpus()
        if self._reused is None:
            self._learn(corpus)
            policy_dir = self._output / TRAINING / POLICY_DIR
        else:
            self._heading(2, "Changes: what is new to the policy")
            self._see(corpus, write_trace=False)
            self._heading(3, f"Training: none, {self._reused.policy_dir} is used again")
            policy_dir = self._reused.policy_dir
        self._heading(4, "Deployment: mlgo-clang and mlgo-clang++, which carry the policy")
        drivers = self._deploy(policy_dir)
        self._heading(5, "Builds: plain clang -Oz, and with the policy")
        optimized = self._variant("optimized", drivers, _OPTIONS)
        self._build_step(self._default)
        self._build_step(optimized)
        tests = self._tests(optimized)
        self._heading(6, "Report: linked text, before and after")
        return self._report(corpus, policy_dir, optimized, tests)

    def _heading(self, number: int, text: str) -> None:
        self._say(f"\n== {number}/6 {text}")

    # 1

    def _corpus(self) -> Corpus:
        folder = self._output / "corpus"
        if self._state.is_done("corpus"):
            self._say("done before")
            return Corpus.load(folder, trusted=self._settings.trust_corpus)
        self._build_step(self._bitcode)
        with self._state.step("corpus") as step:
            shutil.rmtree(folder, ignore_errors=True)
            targets = self._program.targets(self._bitcode)
            testing = targets_of_tests(targets, self._program.test_programs(self._bitcode))
            objects = training_objects(self._program.sources(self._bitcode), targets, testing)
            if not objects:
                raise ConfigError(
                    f"{self._program.name}: no target has objects of C or C++; there is nothing to optimise"
                )
            with tqdm(total=len(objects), desc="extracting", unit="object", disable=None) as bar:
                extraction = extract(objects, folder, num_workers=self._settings.jobs, progress=bar.update)
            version = Corpus.load(folder).compiler_version()
            groups = sorted({name.partition("/")[0] for name in extraction.modules})
            write_description(folder, extraction.modules, projects=groups, version=version)
            step.result = {"modules": len(extraction.modules), "failures": len(extraction.failures)}
            self._say(
                f"{len(extraction.modules)} modules of {len(targets)} targets"
                + (f"; left out: {', '.join(sorted(testing))}, which only test" if testing else "")
            )
            for _, reason in extraction.failures[:_SHOWN_FAILURES]:
                self._say(f"left out: {reason}")
        return Corpus.load(folder, trusted=self._settings.trust_corpus)

    def _build_step(self, variant: Variant) -> None:
        name = variant.folder.name
        if self._state.is_done(name):
            self._say(f"{name}: done before")
            return
        with self._state.step(name) as step:
            # What an earlier step of the same name has left may be of another compiler; an interrupted one goes on.
            if not step.result.get("begun"):
                shutil.rmtree(variant.folder, ignore_errors=True)
                step.result["begun"] = True
                self._state.save()
            self._program.prepare(variant)
            with tqdm(total=None, desc=name, unit="step", disable=None) as bar:

                def report(done: int, total: int) -> None:
                    bar.total = total
                    bar.update(done - bar.n)

                built = self._program.build(variant, report)
            step.result |= {
                "cpu_s": built.cpu_s,
                "objects": len(self._program.sources(variant)),
                "warning": deployment.warning(built),
            }

    # 2 and 3

    def _learn(self, corpus: Corpus) -> None:
        settings = self._settings.learning
        given = settings.training.warmstart_policy_dir
        self._heading(2, f"Warm start: {given or 'a network that imitates what clang -Oz itself decides'}")
        if given:
            self._see(corpus, write_trace=False)
        progress: list[str] = []

        def do_step(step: PipelineStep) -> None:
            if step.name == "trace":
                self._see(corpus, write_trace=True)
            elif step.name == "training":
                self._train(step.do)
            elif not self._state.is_done(step.name):
                with self._state.step(step.name):
                    step.do()
                for line in progress[-1:]:
                    self._say(line)

        pipeline.run(
            self._output,
            corpus,
            self._problem,
            self._toolchain,
            settings,
            echo=progress.append,
            do_step=do_step,
        )

    def _train(self, train: Callable[[], object]) -> None:
        minutes = self._settings.learning.training.max_minutes
        self._heading(3, f"Training: {minutes:g} minutes of reinforcement learning on this program")
        trained = self._state.steps.get("training")
        if trained is not None and trained.done and trained.result["minutes"] >= minutes:
            self._say("done before")
            return
        self._state.forget("deployment", "build-optimized", "tests of build-optimized", "report")
        with self._state.step("training") as step:
            train()
            last = read_entries(self._output / TRAINING / HISTORY_FILE)[0][-1]
            step.result = {
                "minutes": minutes,
                "compiles": int(last["compiles"]),
                "iterations": int(last["iteration"]),
                "reward": float(last["reward_mean"]),
            }
            self._say(
                f"{step.result['iterations']} iterations, {step.result['compiles']} compilations, last reward "
                f"{step.result['reward']:+.2%}"
            )

    def _see(self, corpus: Corpus, *, write_trace: bool) -> None:
        if self._state.is_done("trace"):
            self._say("done before")
            return
        with self._state.step("trace") as step:
            trace_path = self._output / TRACE if write_trace else None
            trace, seen = changes.record_decisions(corpus, self._problem, self._toolchain, trace_path)
            hashes, modules = seen.all(), seen.modules(module.name for module in corpus.modules)
            Reference(modules, np.unique(hashes), {}).save(self._output / "seen")
            step.result = {"modules": len(corpus.modules), "decisions": trace.num_decisions}
            if self._reused is not None and self._reused.reference is not None:
                found = changes.compare(self._reused.reference, modules, hashes)
                step.result["changes"] = dataclasses.asdict(found)
            self._say(f"{trace.num_decisions} decisions in {len(corpus.modules)} modules")
            if failures := trace.baseline.failures:
                self._say(f"{len(failures)} modules do not compile again; the first: {next(iter(failures.values()))}")

    # 4 and 5

    def _deploy(self, policy_dir: Path) -> Compilers:
        output = self._output / "deployed"
        if self._state.is_done("deployment"):
            self._say("done before")
            return deployment.deployed(output, self._toolchain)
        with self._state.step("deployment"):
            shutil.rmtree(output, ignore_errors=True)
            drivers = deployment.deploy_policy(policy_dir, output, self._toolchain)
        self._say(f"{drivers.cxx.parent}")
        return drivers

    def _tests(self, optimized: Variant) -> tuple[TestRun, ...]:
        command = self._settings.test_command
        if command is None:
            command = self._program.test_command(self._default)
        if not command:
            self._say("the project registers no tests with CTest; give them by --test_command")
            return ()
        runs = []
        for variant in (self._default, optimized):
            name = f"tests of {variant.folder.name}"
            if not self._state.is_done(name):
                with self._state.step(name) as step:
                    step.result = dataclasses.asdict(run_tests(command, variant, self._output))
            runs.append(TestRun(**self._state.steps[name].result))
            self._say(f"{name}: {'passed' if runs[-1].passed else 'FAILED'} ({runs[-1].summary})")
        return tuple(runs)

    # 6

    def _report(self, corpus: Corpus, policy_dir: Path, optimized: Variant, tests: tuple[TestRun, ...]) -> Result:
        lld = self._toolchain.tool("ld.lld")
        if not self._state.is_done("report"):
            with self._state.step("report") as step:
                sizes = measure(self._program, self._default, optimized, lld)
                step.result = {"targets": [dataclasses.asdict(size) for size in sizes]}
        sizes = tuple(TargetSize(**values) for values in self._state.steps["report"].result["targets"])
        if not any(size.role == "main" for size in sizes):
            raise CorpusError(f"{self._default.folder}: no program or library came of the build")
        seen = self._state.steps["trace"].result
        reference = self._reused.reference if self._reused is not None else None
        result = Result(
            program=self._program.name,
            targets=sizes,
            tests=tests,
            costs=self._costs(),
            num_modules=seen["modules"],
            num_decisions=seen["decisions"],
            changes=_changes(seen["changes"]) if "changes" in seen else None,
            trained_change=reference.summary.get("change") if reference is not None else None,
            notes=(*self._program.notes(), *self._notes(optimized)),
            provenance=self._provenance(corpus, policy_dir),
        )
        if self._reused is None:
            learnt_from = Reference.load(self._output / "seen")
            assert learnt_from is not None
            dataclasses.replace(learnt_from, summary=result.reference()).save(self._output)
        return result

    def _costs(self) -> tuple[Cost, ...]:
        steps = self._state.steps
        modules = steps["trace"].result["modules"]
        passes = 2 if self._toolchain.problems[self._problem.advisor.problem].default_in_callee_slot else 1
        compiles = {
            "trace": passes * modules,
            "training": steps["training"].result["compiles"] if "training" in steps else 0,
        }
        return tuple(
            Cost(name, step.wall_s, step.cpu_s, compiles.get(name, step.result.get("objects", 0)))
            for name, step in steps.items()
        )

    def _notes(self, optimized: Variant) -> list[str]:
        warning = self._state.steps[optimized.folder.name].result.get("warning")
        return [f"The optimised build was not compiled with the policy throughout: {warning}"] if warning else []

    def _provenance(self, corpus: Corpus, policy_dir: Path) -> Mapping[str, str]:
        facts = {
            "Compiler": f"{self._toolchain.version_text} ({self._toolchain.target})",
            "Options": " ".join(_OPTIONS),
            "Corpus": f"{len(corpus.modules)} modules, linked into {', '.join(corpus.projects())}",
            "Policy": str(policy_dir),
        }
        for key, value in NetworkWeights.load(policy_dir).metadata.items():
            if isinstance(value, (str, int, float)):
                facts[f"Policy: {key.replace('_', ' ')}"] = str(value)
        return facts


def _changes(values: Mapping[str, Any]) -> Changes:
    return Changes(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
