"""A small corpus from each tested compiler, and invented results."""

import pytest

from compiler_opt import problem as problems
from compiler_opt.corpus.description import Corpus
from compiler_opt.evaluation.results import Evaluation, ModuleResult, Output, ProjectResult
from compiler_opt.llvm.object_file import TextParts
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


def output(text_bytes: int, score: float | None = None) -> Output:
    return Output(TextParts(text_bytes), text_bytes if score is None else score, 3, cpu_s=0.5, host_cpu_s=0.25)


@pytest.fixture
def evaluation() -> Evaluation:
    """Four modules of two projects under a policy and one baseline; one compilation of the policy has failed."""
    shapes = ProjectResult(
        name="shapes",
        modules=(
            ModuleResult(
                "shapes/a",
                "shapes",
                "C++",
                {"default": output(1000, 800), "policy": output(900, 700), "never": output(1200)},
                {},
            ),
            ModuleResult(
                "shapes/b", "shapes", "C++", {"default": output(500), "policy": output(510), "never": output(500)}, {}
            ),
        ),
        excluded={"shapes/broken": "shapes/broken: died of SIGSEGV <&>"},
        linked={
            "default": TextParts(code=1000, constants=100, unwind=300),
            "policy": TextParts(code=990, constants=100, unwind=240),
            "never": TextParts(code=1100, constants=100, unwind=400),
            "never worse": TextParts(code=980, constants=100, unwind=240),
        },
        link_failures={},
    )
    plain = ProjectResult(
        name="plain",
        modules=(
            ModuleResult(
                "plain/c", "plain", "C", {"default": output(200), "policy": output(200), "never": output(190)}, {}
            ),
            ModuleResult(
                "plain/d",
                "plain",
                "C",
                {"default": output(300), "never": output(330)},
                {"policy": "plain/d: ran out of time"},
            ),
        ),
        excluded={},
        linked=dict.fromkeys(("default", "policy", "never worse"), TextParts(code=500, unwind=20)),
        link_failures={"never": "linking 2 objects: exit status 1"},
    )
    return Evaluation(
        problem=problems.load("inlining"),
        policy="policy",
        baselines=("never",),
        projects=(shapes, plain),
        started_at="2026-01-02 03:04+00:00",
        wall_s=75,
        seed=0,
        provenance={"Compiler": "clang <19>", "Corpus": "small"},
    )
