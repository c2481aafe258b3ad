"""Small linked text: the decisions of a policy, trained on the program, and single ones found by a search from it.

    1 build with bitcode, extract a corpus         5 deploy compilers that make these decisions
    2 trace, vocabulary, warm start                6 build without and with them, run the tests
    3 train                                        7 measure, report
    4 search for single decisions

The policy is in `policy/`, whether it was trained or not. With one to start from, step 2 trains no warm start, and step
3 may be left out. With a policy to reuse, both only find out how much of the program is new to it, and step 4 takes the
decisions that were found with it, if any. If a target is larger with policy and decisions than without, steps 5 and 6
are repeated, with clang's own decisions there.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt import pretrained
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.evaluation.report_parts import policy_facts
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.plugin_features import check_observed
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import changes, options, steps
from compiler_opt.optimize.changes import Changes, DecisionHashes, Reference
from compiler_opt.optimize.fallback import build_without_growth
from compiler_opt.optimize.optimization import DECISIONS, FUNCTION_OPTIONS, Optimization, OptimizeSettings
from compiler_opt.optimize.options import ChosenOptions
from compiler_opt.optimize.pipeline import ProgramObjective
from compiler_opt.optimize.program import Variant
from compiler_opt.optimize.results import SizeResult, Tests
from compiler_opt.optimize.state import Record
from compiler_opt.optimize.steps import Searched
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.report.formatting import change_text
from compiler_opt.rl import pipeline
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.default_trace import record_default_trace
from compiler_opt.rl.pipeline import TRACE, TRAINING, PipelineSettings, PipelineStep
from compiler_opt.search import function_options, report
from compiler_opt.search.program_search import search
from compiler_opt.search.progress_bar import search_bar
from compiler_opt.search.search import SearchSettings
from compiler_opt.tensorflow_loading import require_tensorflow

SEEN = "seen"
"""The folder of the program's decisions before training."""

_BUDGET = 1000
"""Compiles a module; the time ends most searches before."""


@dataclasses.dataclass(frozen=True)
class ReusedPolicy:
    """An earlier policy, and the program that it was trained on, if known.

    Attributes:
      policy_dir: its folder.
      reference: the program.
      decisions: decision file of a search from the policy, if there was one.
      function_options: the file of options of single functions, if there are any.
    """

    policy_dir: Path
    reference: Reference | None
    decisions: Path | None = None
    function_options: Path | None = None

    @classmethod
    def find(cls, folder: Path) -> "ReusedPolicy":
        """The policy in the folder of an optimisation, or in its own folder.

        Raises:
          PolicyError: the description of its program is damaged.
        """
        decisions, options = folder / DECISIONS, folder / FUNCTION_OPTIONS
        policy_dir = folder / POLICY_DIR
        return cls(
            (policy_dir if policy_dir.is_dir() else folder).absolute(),
            Reference.load(folder),
            decisions.absolute() if decisions.is_file() else None,
            options.absolute() if options.is_file() else None,
        )


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The default's decisions: how many, whether in a trace, and changes of the program since training, if known."""

    decisions: int
    has_trace: bool
    changes: Changes | None


@dataclasses.dataclass(frozen=True)
class Found:
    """What the compilers are to decide: a policy, what it was trained on, maybe a file of decisions, and options."""

    corpus: Corpus
    policy_dir: Path
    recorded: Recorded
    decisions: Path | None
    options: ChosenOptions


@dataclasses.dataclass(frozen=True)
class SmallText(ProgramObjective[Found, SizeResult]):
    """Small linked text, by a policy.

    Attributes:
      learning: how to train, and for how long (`training.max_minutes`).
      trains: whether to train at all; otherwise the policy to start from decides, or the default if there is none.
      changed_settings: the user's changes to `learning`, as text; an optimisation continues only with the same.
      reused: the earlier policy to use, instead of training one; every such optimisation starts over.
    """

    learning: PipelineSettings = dataclasses.field(default_factory=PipelineSettings)
    trains: bool = True
    changed_settings: str = ""
    reused: ReusedPolicy | None = None

    quantity = "linked text"
    num_headings = 7

    @property
    def starts_over(self) -> bool:
        return self.reused is not None

    def check(self, toolchain: Toolchain, settings: OptimizeSettings) -> None:
        reused, given = self.reused, self.learning.training.warmstart_policy_dir
        if reused is not None:
            given = str(reused.policy_dir)
        elif self.trains:
            require_tensorflow("training a policy (without --reuse_policy, with less --search_minutes than --minutes)")
        if given:
            support = toolchain.require(PROBLEM.decision.advisor.problem)
            policy = PROBLEM.decision.load_policy(pretrained.folder(given))
            policy.check(support.feature_names)
            check_observed((spec.name for spec in support.features), policy.weights.features, given)
        if reused is not None and reused.function_options is not None:
            function_options.load(reused.function_options)
        if reused is not None and reused.policy_dir.resolve().is_relative_to(settings.output.resolve()):
            raise ConfigError(f"{settings.output}: holds the policy; give another folder as --output_dir")

    def identity(self, settings: OptimizeSettings) -> Mapping[str, str]:
        if self.reused is not None:
            return {"policy": str(self.reused.policy_dir)}
        return {"settings of the training": self.changed_settings}

    def find(self, run: Optimization) -> Found:
        corpus, reused = steps.make_corpus(run), self.reused
        if reused is not None:
            run.heading(2, "Changes: what is new to the policy")
            policy_dir, recorded = reused.policy_dir, _record_decisions(run, corpus, reference=reused.reference)
            run.heading(3, f"Training: {self._training()}")
        elif self.trains:
            policy_dir, recorded = _train(run, corpus, self.learning, self._training())
        else:
            policy_dir, recorded = _take_policy(
                run, corpus, self.learning.training.warmstart_policy_dir, self._training()
            )
        minutes = run.settings.search_minutes
        if reused is not None and reused.decisions is not None:
            run.heading(4, f"Search: none, {reused.decisions} is reused")
            decisions: Path | None = reused.decisions
        else:
            run.heading(4, f"Search: {minutes:g} minutes, from the policy" if minutes else "Search: none")
            if minutes:
                _search(run, corpus, policy_dir)
            decisions = run.folder / DECISIONS if minutes else None
        known = reused.function_options if reused is not None else None
        chosen = options.choose(run, corpus, policy_dir, decisions, known)
        return Found(corpus, policy_dir, recorded, decisions, chosen)

    def _training(self) -> str:
        """How the policy was trained on this program, if it was."""
        training = self.learning.training
        if self.reused is not None:
            return f"none, {self.reused.policy_dir} is reused"
        if self.trains:
            return f"{training.max_minutes:g} minutes of reinforcement learning on this program"
        return f"none, {training.warmstart_policy_dir or 'the default'} decides"

    def build(self, run: Optimization, found: Found) -> Variant:
        return build_without_growth(run, found.corpus, found.policy_dir, found.decisions, found.options.path)

    def result(self, run: Optimization, found: Found, optimized: Variant | None, tests: Tests) -> SizeResult:
        assert optimized is not None
        facts = {**steps.provenance(run, found.corpus), "Policy": str(found.policy_dir)}
        facts["Training"] = self._training()
        facts |= policy_facts(NetworkWeights.load(found.policy_dir))
        reference = self.reused.reference if self.reused is not None else None
        result = SizeResult(
            program=run.program.name,
            targets=steps.sizes(run, optimized),
            tests=tests,
            costs=run.state.costs(),
            notes=tuple(run.notes),
            provenance=facts,
            num_modules=len(found.corpus.modules),
            num_decisions=found.recorded.decisions,
            compilers=(str(optimized.compilers.c), str(optimized.compilers.cxx)),
            options=(run.settings.level,),
            is_reused=self.reused is not None,
            changes=found.recorded.changes,
            earlier_change=reference.summary.get("change") if reference is not None else None,
            function_options=found.options.sets,
        )
        if self.reused is None:
            trained_on = Reference.load(run.folder / SEEN)
            assert trained_on is not None
            dataclasses.replace(trained_on, summary=result.reference()).save(run.folder)
        return result


def _record_decisions(
    run: Optimization,
    corpus: Corpus,
    *,
    write_trace: bool = False,
    min_modules: int = 1,
    reference: Reference | None = None,
) -> Recorded:
    """Records the default's decisions: hashes of their features, compared with a reference, and maybe a trace."""
    toolchain = run.toolchain

    def work(record: Record) -> Recorded:
        decisions = DecisionHashes(PROBLEM.decision.feature_names)
        path = run.folder / TRACE if write_trace else None
        with WorkerPool(toolchain, PROBLEM) as pool:
            trace = record_default_trace(corpus, PROBLEM, toolchain, pool, path, on_context=decisions.add)
        if trace.num_modules < min_modules:
            raise ConfigError(
                f"the program has {trace.num_modules} modules with inlining decisions, of {len(corpus.modules)}; "
                f"expected at least {min_modules}"
            )
        hashes, modules = decisions.all(), decisions.modules(module.name for module in corpus.modules)
        Reference(modules, np.unique(hashes), {}).save(run.folder / SEEN)
        run.echo(f"{trace.num_decisions} decisions in {len(corpus.modules)} modules")
        if failures := trace.baseline.failures:
            run.echo(f"{len(failures)} modules failed to compile; the first: {next(iter(failures.values()))}")
        # Where the default's decision takes the place of a feature, a second compilation records the feature.
        twice = toolchain.problems[PROBLEM.decision.advisor.problem].default_in_callee_slot
        record.compiles = len(corpus.modules) * (2 if twice else 1)
        new = changes.compare(reference, modules, hashes) if reference is not None else None
        return Recorded(trace.num_decisions, write_trace, new)

    return run.state.do(
        "trace",
        Recorded,
        work,
        inputs=[reference and (dict(reference.modules), reference.decisions.tobytes())],
        after=["corpus"],
        is_enough=lambda recorded: recorded.has_trace or not write_trace,
    )


def _train(run: Optimization, corpus: Corpus, learning: PipelineSettings, training: str) -> tuple[Path, Recorded]:
    """Clones the default's decisions, unless there is a policy to start from, and trains; returns the policy's folder.

    A training that is done continues if it was shorter than asked for now.
    """
    start = learning.training.warmstart_policy_dir
    run.heading(2, f"Warm start: {start or 'a network that imitates the decisions of clang -Oz'}")
    recorded = _record_decisions(run, corpus, write_trace=not start, min_modules=2)
    progress: list[str] = []

    def do_step(step: PipelineStep) -> None:
        def work(record: Record) -> None:
            step.do()
            for line in progress[-1:]:
                run.echo(line)

        if step.name == "training":
            _improve(run, step, learning, training)
        elif step.name != "trace":
            run.state.do(step.name, type(None), work, after=["trace"])

    trained = pipeline.run(run.folder, corpus, PROBLEM, run.toolchain, learning, echo=progress.append, do_step=do_step)
    return _keep_policy(run, trained.policy_dir), recorded


def _take_policy(run: Optimization, corpus: Corpus, start: str, training: str) -> tuple[Path, Recorded]:
    """Takes the policy to start from as it is or, if there is none, one that keeps the default; returns its folder."""
    run.heading(2, "Decisions of clang -Oz")
    recorded = _record_decisions(run, corpus)
    run.heading(3, f"Training: {training}")
    return _keep_policy(run, pretrained.folder(start) if start else None), recorded


def _keep_policy(run: Optimization, source: Path | None) -> Path:
    """Copies a policy, or one that keeps the default, to where every optimisation has its own."""
    folder = run.folder / POLICY_DIR
    with replaced_folder(folder) as new:
        if source is not None:  # Of it, the weights and the card: what else is there may be anything.
            NetworkWeights.load(source).save(new)
            if (card := ModelCard.load(source)) is not None:
                card.save(new)
        else:
            NetworkWeights.keeping_default(PROBLEM.decision.feature_names[0]).save(new)
    return folder


def _improve(run: Optimization, step: PipelineStep, learning: PipelineSettings, training: str) -> None:
    minutes = learning.training.max_minutes
    run.heading(3, f"Training: {training}")
    start = learning.training.warmstart_policy_dir

    def work(record: Record) -> float:
        if not record.continues:
            shutil.rmtree(run.folder / TRAINING, ignore_errors=True)
        step.do()
        last = read_entries(run.folder / TRAINING / HISTORY_FILE)[0][-1]
        record.compiles = int(last["compiles"])
        run.echo(
            f"{last['iteration']} iterations, {last['compiles']} compilations, last reward {last['reward_mean']:+.2%}"
        )
        return minutes

    inputs = [NetworkWeights.load(pretrained.folder(start)).checksum()] if start else []
    run.state.do("training", float, work, inputs=inputs, after=["trace"], is_enough=lambda trained: trained >= minutes)


def _search(run: Optimization, corpus: Corpus, policy_dir: Path) -> None:
    """Searches from the policy.

    Raises:
      CompilerOptError: see `search`.
    """

    def find(settings: SearchSettings, folder: Path) -> Searched:
        base = PROBLEM.decision.load_policy(policy_dir)
        toolchain = with_plugin_features(run.toolchain, base.plugin_features)
        targets = {name: [module.name for module in modules] for name, modules in corpus.projects().items()}
        with (
            search_bar(None, settings.max_minutes) as bar,
            WorkerPool(toolchain, PROBLEM, run.settings.jobs) as pool,
        ):
            bar.begin(run.program.name)
            found = search(
                corpus.modules,
                base,
                pool,
                PROBLEM,
                toolchain,
                settings,
                name=run.program.name,
                targets=targets,
                folder=folder,
                on_progress=bar.show,
            )
        report.write(found, folder)
        change = f"{change_text(found.change)} of linked text against plain clang"
        run.echo(f"{len(found.decisions)} decisions after {found.compiles} compilations: {change}")
        return Searched(run.settings.search_minutes, len(found.decisions), found.compiles)

    steps.search(run, [NetworkWeights.load(policy_dir).checksum()], _BUDGET, find)
