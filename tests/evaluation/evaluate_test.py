"""Evaluations of a small corpus by real compilers and linkers."""

import dataclasses
import signal
import subprocess
import zlib
from pathlib import Path

import psutil
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, Rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM as INLINING
from compiler_opt.errors import ConfigError, CorpusError, ToolchainError
from compiler_opt.evaluation.evaluate import EvaluationSettings, baselines, evaluate, num_rollouts
from compiler_opt.evaluation.results import NEVER_WORSE, Evaluation
from compiler_opt.llvm.object_file import linked_parts, read_object_sizes, read_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.objectives.linked_text import larger_copies, weighted_text_bytes
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.policy import ConstantPolicy, Decider
from tests.small_corpus import make_corpus

SETTINGS = EvaluationSettings(num_workers=2)

SWITCH = """
void a(void), b(void), c(void);
void choose(unsigned x) { switch (x) { case 0: a(); break; case 1: b(); break; case 2: c(); break; } }
static int twice(int x) { return x * 2 + x / 7; }
int four(int x) { return twice(x) + twice(x + 1); }
static void one(void) { a(); }
void call(void) { one(); }
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def result(corpus: Corpus, toolchain: Toolchain, kept: Path) -> Evaluation:
    """The default's decisions as a policy over the channel, and all baselines."""
    default = DefaultPolicy(INLINING)
    default.name = "policy"
    return evaluate(
        corpus,
        default,
        baselines(INLINING, ["never", "always", "random"]),
        problem=INLINING,
        toolchain=toolchain,
        settings=dataclasses.replace(SETTINGS, keep_objects=kept),
    )


@pytest.mark.ci
def test_the_defaults_own_decisions_change_nothing(result: Evaluation) -> None:
    total = result.totals["policy"]
    assert result.failures() == []
    assert (total.objects.wins, total.objects.losses, total.objects.ties) == (0, 0, 4)
    assert total.linked_change == total.objects.total.value == total.scores.total.value == 0
    assert all(project.linked_change("policy") == 0 for project in result.projects)


def test_baselines_differ(result: Evaluation) -> None:
    assert result.totals["never"].objects.ties < 4
    assert result.totals["never"].linked_bytes != result.totals["always"].linked_bytes


def test_projects_and_languages(result: Evaluation) -> None:
    assert [(project.name, project.languages, len(project.modules)) for project in result.projects] == [
        ("shapes", "C++", 2),
        ("plain", "C", 2),
    ]


def test_numbers_match_the_kept_objects(result: Evaluation, kept: Path) -> None:
    for project in result.projects:
        for policy in ("default", *result.policies):
            objects = {module.name: read_object_sizes(kept / policy / module.name) for module in project.modules}
            defaults = [read_object_sizes(kept / "default" / module.name) for module in project.modules]
            # Whatever the default emits nowhere counts as often as it is emitted when nothing is inlined.
            never = [read_object_sizes(kept / "never" / module.name) for module in project.modules]
            copies = larger_copies(defaults, never)
            for module in project.modules:
                output = module.outputs[policy]
                assert output.text_bytes == objects[module.name].text_bytes
                assert output.score == pytest.approx(weighted_text_bytes(objects[module.name], copies))
    shapes = result.projects[0]
    # What both objects carry is linked once, and the score knows: it is nearer to the linked size.
    linked, objects_total = shapes.linked_bytes["never"], shapes.object_bytes("never")
    assert linked < objects_total
    assert abs(shapes.score("never") - linked) < abs(objects_total - linked)


def test_never_worse_takes_the_better_object(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    """Random decisions make some modules smaller and others bigger."""
    policy = baselines(INLINING, ["random"])[0]
    settings = dataclasses.replace(SETTINGS, keep_objects=tmp_path)
    result = evaluate(corpus, policy, problem=INLINING, toolchain=toolchain, settings=settings)
    for project in result.projects:
        better = []
        for module in project.modules:
            default, random = (module.outputs[name].text for name in ("default", "random"))
            is_better = random.total < default.total and random.code <= default.code
            better.append(tmp_path / ("random" if is_better else "default") / module.name)
        assert project.linked[NEVER_WORSE] == linked_parts(toolchain.tool("ld.lld"), better)
    linked = [[project.linked_bytes[name] for project in result.projects] for name in ("default", NEVER_WORSE)]
    assert result.never_worse_change() == pytest.approx(sum(linked[1]) / sum(linked[0]) - 1)


OPTION_SETS = OptionSets({"Oz": ("-min-jump-table-entries=3",), "O2": ("-no-such-option",)})


def test_options_alone_and_with_a_policy(clang_path: str, toolchain: Toolchain, tmp_path: Path) -> None:
    """A switch of three values becomes a jump table, whatever is inlined; of a callee, only where it is inlined."""
    corpus = make_corpus(tmp_path, clang_path, {"p/switch.c": SWITCH})
    never = ConstantPolicy(0, "policy")
    settings = dataclasses.replace(SETTINGS, link_shared=True)
    result = evaluate(corpus, never, problem=INLINING, toolchain=toolchain, options=OPTION_SETS, settings=settings)
    assert (result.policy, result.alone, result.policy_alone) == ("policy+options", ("options", "policy"), "policy")
    assert result.failures() == []
    (project,) = result.projects
    flags = {"default": [], "options": ["-mllvm", "-min-jump-table-entries=3"]}
    for name, words in flags.items():
        command = [clang_path, "-cc1", "-Oz", *words, "-emit-obj", "-x", "ir", f"{corpus.modules[0].bitcode_path}"]
        subprocess.run([*command, "-o", str(tmp_path / name)], check=True)
        assert read_parts(tmp_path / name) == project.modules[0].outputs[name].text
    assert all(project.shared[name].dynamic > project.linked[name].dynamic == 0 for name in project.linked)
    parts = [project.linked[name] for name in ("default", *result.variants)]
    assert len(set(parts)) == 4, "each differs"
    # Alone, options change no decision; with the policy, both do what they do.
    assert [each.constants > 0 for each in parts] == [False, True, False, True]
    options_alone = evaluate(
        corpus, None, problem=INLINING, toolchain=toolchain, options=OPTION_SETS, settings=SETTINGS
    )
    assert (options_alone.policy, options_alone.policies, options_alone.policy_alone) == ("options", ("options",), None)
    assert options_alone.projects[0].linked["options"] == parts[1]


@pytest.mark.ci
def test_options_need_no_channel(corpus: Corpus, toolchain: Toolchain) -> None:
    support = dataclasses.replace(toolchain.problems["inlining"], interactive=False, reason="it is old")
    without = dataclasses.replace(toolchain, problems={"inlining": support})
    result = evaluate(corpus, None, problem=INLINING, toolchain=without, options=OPTION_SETS, settings=SETTINGS)
    assert result.failures() == []
    with pytest.raises(ToolchainError, match="no inlining decisions over the channel: it is old"):
        evaluate(corpus, ConstantPolicy(0, "x"), problem=INLINING, toolchain=without, settings=SETTINGS)
    with pytest.raises(ConfigError, match="expected a policy, options, or both"):
        evaluate(corpus, None, problem=INLINING, toolchain=toolchain)


@pytest.mark.ci
def test_random_is_the_same_for_the_same_seed(result: Evaluation, corpus: Corpus, toolchain: Toolchain) -> None:
    random = baselines(INLINING, ["random"])[0]
    again = evaluate(corpus, random, problem=INLINING, toolchain=toolchain, settings=SETTINGS)
    for before, after in zip(result.modules, again.modules, strict=True):
        assert before.outputs["random"].text_bytes == after.outputs["random"].text_bytes


@pytest.mark.ci
def test_a_module_that_fails_is_named_and_excluded(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    damaged = damaged_corpus(corpus, tmp_path, "shapes/edge.cpp.o")
    seen: list[Rollout] = []
    result = evaluate(
        damaged,
        ConstantPolicy(0, "policy"),
        problem=INLINING,
        toolchain=toolchain,
        settings=SETTINGS,
        on_rollout=seen.append,
    )
    shapes = result.projects[0]
    assert list(shapes.excluded) == ["shapes/edge.cpp.o"]
    assert [module.name for module in shapes.modules] == ["shapes/area.cpp.o"]
    assert [failure.where for failure in result.failures()] == ["shapes/edge.cpp.o"]
    assert len(seen) == num_rollouts(damaged, ConstantPolicy(0, "policy")) == 8


def damaged_corpus(corpus: Corpus, folder: Path, *names: str) -> Corpus:
    """A copy of the corpus in which the named modules have damaged bitcode."""
    for path in corpus.root.rglob("*"):
        if path.is_file():
            copy = folder / path.relative_to(corpus.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    for name in names:
        path = folder / f"{name}.bc"
        data = path.read_bytes()
        # Of the right length, which loading a corpus looks at.
        path.write_bytes(data[:100] + b"\xff" * 300 + data[400:])
    return Corpus.load(folder)


def test_a_run_stops_with_the_reason_if_most_modules_fail(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    damaged = damaged_corpus(corpus, tmp_path, *(module.name for module in corpus.modules))
    with pytest.raises(CorpusError, match=r"4 of 4 modules \(with (default|x)\) failed to compile; the first: \S+: "):
        evaluate(damaged, ConstantPolicy(0, "x"), problem=INLINING, toolchain=toolchain, settings=SETTINGS)


class DeadlyOnOne(ConstantPolicy):
    """Kills the compiler on the named module by a signal that LLVM does not handle."""

    def __init__(self, module: str):
        super().__init__(1, "policy")
        self._seed = zlib.crc32(module.encode())  # A module's own stream of random numbers tells it from the others.

    def start(self, header: Header, seed: int) -> Decider:
        if seed == self._seed:
            for process in psutil.Process().children(recursive=True):
                if not process.children():
                    process.send_signal(signal.SIGALRM)
        return super().start(header, seed)


@pytest.mark.ci
def test_the_default_replaces_failed_compilations(corpus: Corpus, toolchain: Toolchain) -> None:
    deadly = DeadlyOnOne("shapes/area.cpp.o")
    result = evaluate(corpus, deadly, problem=INLINING, toolchain=toolchain, settings=SETTINGS)
    area, edge = result.projects[0].modules
    assert "died of SIGALRM" in area.failures["policy"]
    assert area.change("policy") == 0
    assert edge.failures == {}
    assert result.projects[0].linked_change("policy") is not None
    assert [failure.where for failure in result.failures()] == ["shapes/area.cpp.o"]


def test_lld_is_needed(corpus: Corpus, toolchain: Toolchain) -> None:
    without = dataclasses.replace(toolchain, tools={})
    with pytest.raises(ToolchainError, match=r"ld\.lld: not found"):
        evaluate(corpus, ConstantPolicy(0, "policy"), problem=INLINING, toolchain=without)


def test_policies_must_differ_in_name(corpus: Corpus, toolchain: Toolchain) -> None:
    with pytest.raises(ConfigError, match="differ in name"):
        evaluate(corpus, ConstantPolicy(0, "default"), problem=INLINING, toolchain=toolchain)


def test_unknown_baselines_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown baseline 'sometimes' for inlining; expected never, always, random"):
        baselines(INLINING, ["sometimes"])
    with pytest.raises(ConfigError, match="expected random, first, most_expensive"):
        baselines(problems.load("regalloc_eviction"), ["never"])
    with pytest.raises(ConfigError, match="expected none"):
        baselines(problems.load("regalloc_priority"), ["never"])
