"""Commands of google/ml-compiler-opt's README and demos do, with other paths only, what ours do.

What a command gets beyond that ends it early. The demos' other commands, for corpora, are in `mlgo_utils_test.py`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TypeAlias

import pytest

from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import POLICY_DIR, SAVED_POLICY
from compiler_opt.tools import gin_settings, ml_compiler_opt
from tests import programs
from tests.small_corpus import BUSY_SOURCES, SOURCES, make_corpus

CLANG, LLVM_SIZE = "/usr/bin/clang-22", "/usr/bin/llvm-size-22"

END = (
    "--gin_bindings=train_eval.num_iterations=1",
    "--gin_bindings=train_eval.rollouts_per_module=2",
    "--num_workers=2",
)
"""What ends train_locally after an iteration."""

ALL_SETTINGS = (gin_settings.of_compilations(), gin_settings.of_cloning(), gin_settings.of_training())

TOOLS = "compiler_opt/tools"
RL = "compiler_opt/rl"
IMPLEMENTATION = "--gin_bindings=config_registry.get_configuration.implementation=@configs"


@dataclasses.dataclass(frozen=True)
class Steps:
    """The flags of a way from a corpus to a policy, in the folder that has `corpus` and where they write.

    Attributes:
      trace, cloning, training: of generate_default_trace, train_bc and train_locally.
    """

    trace: Sequence[str]
    cloning: Sequence[str]
    training: Sequence[str]


WARM_START = '--gin_bindings=train_eval.warmstart_policy_dir="warm_start/saved_policy"'

INLINING = {
    "readme": Steps(
        trace=[
            "--compile_task=inlining",
            f"--clang_path={CLANG}",
            f"--llvm_size_path={LLVM_SIZE}",
            "--sampling_rate=0.2",
        ],
        cloning=[f"--gin_files={RL}/gin_configs/behavioral_cloning_nn_agent.gin"],
        training=[
            f"--clang_path={CLANG}",
            f"--llvm_size_path={LLVM_SIZE}",
            "--num_modules=100",
            f"--gin_files={RL}/gin_configs/ppo_nn_agent.gin",
            WARM_START,
        ],
    ),
    "demo": Steps(
        trace=[
            f"--gin_files={RL}/inlining/gin_configs/common.gin",
            f"{IMPLEMENTATION}.InliningConfig",
            f"--gin_bindings=clang_path='{CLANG}'",
            f"--gin_bindings=llvm_size_path='{LLVM_SIZE}'",
            "--sampling_rate=0.2",
        ],
        cloning=[f"--gin_files={RL}/inlining/gin_configs/behavioral_cloning_nn_agent.gin"],
        training=[
            f"--gin_bindings=clang_path='{CLANG}'",
            f"--gin_bindings=llvm_size_path='{LLVM_SIZE}'",
            f"--gin_files={RL}/inlining/gin_configs/ppo_nn_agent.gin",
            WARM_START,
        ],
    ),
    "ours": Steps(
        trace=[f"--clang_path={CLANG}", "--sampling_rate=0.2"],
        cloning=[
            f"--vocab_path={RL}/inlining/vocab",
            "--gin_files=gin_configs/inlining/behavioral_cloning_nn_agent.gin",
        ],
        training=[
            f"--clang_path={CLANG}",
            "--num_modules=100",
            "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
            "--warmstart_policy_dir=warm_start/policy",
        ],
    ),
}

REGALLOC = {
    "demo": Steps(
        trace=[
            f"--gin_files={RL}/regalloc/gin_configs/common.gin",
            f"--gin_bindings=clang_path='{CLANG}'",
            "--sampling_rate=0.2",
        ],
        cloning=[f"--gin_files={RL}/regalloc/gin_configs/behavioral_cloning_nn_agent.gin"],
        training=[
            f"--gin_bindings=clang_path='{CLANG}'",
            f"--gin_files={RL}/regalloc/gin_configs/ppo_nn_agent.gin",
            WARM_START,
        ],
    ),
    "ours": Steps(
        trace=["--compile_task=regalloc_eviction", f"--clang_path={CLANG}", "--sampling_rate=0.2"],
        cloning=[
            f"--vocab_path={RL}/regalloc/vocab",
            "--gin_files=gin_configs/regalloc_eviction/behavioral_cloning_nn_agent.gin",
        ],
        training=[
            "--compile_task=regalloc_eviction",
            f"--clang_path={CLANG}",
            "--gin_files=gin_configs/regalloc_eviction/ppo_nn_agent.gin",
            "--warmstart_policy_dir=warm_start/policy",
        ],
    ),
}


def run(place: Path, program: str, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Runs a script in a folder that has what a checkout has; returns its stdout and stderr."""
    result = programs.run(program, *arguments, cwd=place, timeout_s=1800)
    assert result.returncode == status, result.stderr
    return result.stdout, result.stderr


def make_place(place: Path, sources: dict[str, str], level: str) -> Path:
    """A folder in which relative paths are those of a checkout, with a corpus in `corpus`."""
    for name in ("compiler_opt", "gin_configs"):
        (place / name).symlink_to(programs.ROOT / name)
    (place / "corpus").mkdir()
    make_corpus(place / "corpus", CLANG, sources, level)
    return place


def follow(place: Path, steps: Steps) -> list[str]:
    """Takes all steps; returns what each said on stderr."""
    return [
        run(place, f"{TOOLS}/generate_default_trace.py", "--data_path=corpus", "--output_path=trace", *steps.trace)[1],
        run(place, f"{RL}/train_bc.py", "--root_dir=warm_start", "--data_path=trace", *steps.cloning)[1],
        run(place, f"{RL}/train_locally.py", "--root_dir=model", "--data_path=corpus", *steps.training, *END)[1],
    ]


def same_trace_and_clone(one: Path, other: Path) -> None:
    """The same trace, and the same cloned policy, under both names."""
    assert (one / "trace").read_bytes() == (other / "trace").read_bytes()
    cloned = NetworkWeights.load(other / "warm_start" / POLICY_DIR).checksum()
    for name in (POLICY_DIR, SAVED_POLICY):
        assert NetworkWeights.load(one / "warm_start" / name).checksum() == cloned


Ways: TypeAlias = Callable[[str], tuple[Path, list[str]]]
"""Goes a way, once; returns its folder, and what its steps said on stderr."""


@pytest.fixture(scope="module", name="inlining")
def inlining_fixture(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    """The ways of INLINING, over 15 modules, of which `sampling_rate` keeps 3."""
    names = [name for name in SOURCES if name != "plain/data.c"]
    sources = {f"p{number}/{Path(name).name}": SOURCES[name] for number in range(5) for name in names}

    @functools.cache
    def go(way: str) -> tuple[Path, list[str]]:
        place = make_place(tmp_path_factory.mktemp(way), sources, "Oz")
        return place, follow(place, INLINING[way])

    return go


@pytest.mark.slow
def test_the_readme_does_what_ours_does(inlining: Ways) -> None:
    (place, said), (ours, ours_said) = inlining("readme"), inlining("ours")
    same_trace_and_clone(place, ours)
    trained = [NetworkWeights.load(each / "model" / SAVED_POLICY) for each in (place, ours)]
    assert trained[0].checksum() == trained[1].checksum()
    unneeded = "note: --llvm_size_path has no use here: sizes are read from the objects\n"
    assert said[0] == unneeded
    assert "behavioral_cloning_nn_agent.gin is gin_configs/inlining/behavioral_cloning_nn_agent.gin here\n" in said[1]
    assert "note: the vocabulary is the one that ships" in said[1]
    assert said[2].count(unneeded) == 1
    assert said[2].count("ppo_nn_agent.gin is gin_configs/inlining/ppo_nn_agent.gin here\n") == 1
    assert not any("note: " in text for text in ours_said)


@pytest.mark.slow
def test_the_inlining_demo_does_what_ours_does(inlining: Ways) -> None:
    (place, said), (ours, _) = inlining("demo"), inlining("ours")
    same_trace_and_clone(place, ours)
    assert NetworkWeights.load(place / "model" / SAVED_POLICY).metadata["iterations"] == 1
    for text in (said[0], said[2]):
        assert text.count("note: clang_path is --clang_path here\n") == 1
        assert text.count("note: llvm_size_path has no use here: sizes are read from the objects\n") == 1
    assert "implementation = @configs.InliningConfig is --compile_task=inlining here\n" in said[0]


@pytest.mark.slow
def test_the_demo_makes_a_vocabulary_and_a_performance_report(inlining: Ways, tmp_path: Path) -> None:
    place, _ = inlining("demo")
    gin = f"--gin_files={RL}/inlining/gin_configs/common.gin"
    run(place, f"{TOOLS}/generate_vocab.py", gin, "--input=trace", f"--output_dir={tmp_path / 'vocab'}")
    ours = "--gin_files=gin_configs/inlining/common.gin"
    run(place, f"{TOOLS}/generate_vocab.py", ours, "--input=trace", f"--output_dir={tmp_path / 'ours'}")
    for path in (tmp_path / "ours").iterdir():
        assert (tmp_path / "vocab" / path.name).read_bytes() == path.read_bytes()

    reports = {
        "report": [
            "--policy_path=model/saved_policy",
            "--compile_task=inlining",
            gin,
            f"--gin_bindings=clang_path='{CLANG}'",
            f"--gin_bindings=llvm_size_path='{LLVM_SIZE}'",
        ],
        "ours": ["--policy_path=model/policy", f"--clang_path={CLANG}"],
    }
    for name, flags in reports.items():
        where = ["--data_path=corpus", f"--output_performance_path={tmp_path / f'{name}.csv'}", "--sampling_rate=0.2"]
        run(place, f"{TOOLS}/generate_default_trace.py", *where, *flags)
    lines = (tmp_path / "report.csv").read_text().splitlines()
    assert lines == (tmp_path / "ours.csv").read_text().splitlines()
    assert len(lines) == 1 + 3


@pytest.mark.slow
def test_the_register_allocation_demo_does_what_ours_does(tmp_path: Path) -> None:
    names = [name for name in BUSY_SOURCES if name != "mixed/easy.c"]
    sources = {f"p{number}/{Path(name).name}": BUSY_SOURCES[name] for number in range(3) for name in names}
    places = {}
    for way, steps in REGALLOC.items():
        (tmp_path / way).mkdir()
        places[way] = make_place(tmp_path / way, sources, "O2")
        said = follow(places[way], steps)
        assert ("gin_configs/regalloc_eviction/common.gin here" in said[0]) == (way == "demo")
    same_trace_and_clone(places["demo"], places["ours"])
    trained = [NetworkWeights.load(place / "model" / SAVED_POLICY) for place in places.values()]
    assert trained[0].checksum() == trained[1].checksum()
    assert trained[0].metadata["problem"] == "regalloc_eviction"

    report = "--output_performance_path=performance_data.csv"
    flags = {
        "demo": [
            f"--gin_files={RL}/regalloc/gin_configs/common.gin",
            f"{IMPLEMENTATION}.RegallocEvictionConfig",
            f"--gin_bindings=clang_path='{CLANG}'",
            report,
            "--policy_path=model/saved_policy",
        ],
        "ours": ["--compile_task=regalloc_eviction", f"--clang_path={CLANG}", report, "--policy_path=model/policy"],
    }
    for way, place in places.items():
        run(place, f"{TOOLS}/generate_default_trace.py", "--data_path=corpus", *flags[way])
    tables = [(place / "performance_data.csv").read_text() for place in places.values()]
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 1 + len(sources)


PROGRAMS = {
    name: f"{folder}/{name}.py"
    for folder, names in {
        TOOLS: ("generate_default_trace", "generate_vocab"),
        RL: ("train_bc", "train_locally"),
    }.items()
    for name in names
}

REQUIRED = {
    "generate_default_trace": ("--data_path=corpus", "--output_path=out"),
    "generate_vocab": ("--input=trace", "--output_dir=out"),
    "train_bc": ("--root_dir=out", "--data_path=trace"),
    "train_locally": ("--root_dir=out", "--data_path=corpus"),
}


@pytest.mark.parametrize(
    ("program", "flag", "complaint"),
    [
        ("generate_vocab", "--num_buckets=1000", "--num_buckets is --num_quantiles here"),
        ("generate_vocab", "--parallelism=4", "--parallelism is --num_workers here"),
        ("generate_default_trace", "--sample_rate=0.2", "--sample_rate is --sampling_rate here"),
        ("generate_default_trace", "--key_filter=x", "--key_filter is --module_filter here"),
        ("generate_default_trace", "--keys_file=x", "--keys_file has no counterpart here"),
        ("train_bc", "--explicit_temps_dir=x", "--explicit_temps_dir has no counterpart here"),
        ("train_bc", "--llvm_size_path=x", "--llvm_size_path has no counterpart here"),
        ("train_bc", "--parallelism=4", "Unknown command line flag 'parallelism'"),
        (
            "train_locally",
            "--gin_files=compiler_opt/rl/inlining/gin_configs/dqn_rnn_agent.gin",
            "expected a path, or one of those that ship: inlining/{bc_max,",
        ),
        ("train_bc", "--gin_files=compiler_opt/rl/unroll/gin_configs/common.gin", "common.gin: no such file"),
        ("generate_default_trace", "--gin_bindings=clang_pth='clang-22'", "nothing uses 'clang_pth'"),
        ("generate_default_trace", "--gin_bindings=llvm_size_path'=llvm-size'", "expected name.parameter=value"),
        ("generate_default_trace", "--gin_bindings=launcher_path='x'", "launcher_path has no counterpart here"),
        ("train_bc", "--gin_bindings=clang_path='clang-22'", "clang_path has no use in this command"),
        ("train_bc", "--gin_bindings=train_eval.num_iterations=9", "num_iterations is train_eval.num_epochs here"),
        (
            "train_locally",
            "--gin_bindings=train_eval.num_policy_iterations=9",
            "train_eval.num_policy_iterations is train_eval.num_iterations here",
        ),
        ("train_locally", "--gin_bindings=train_eval.batch_size=9", "is ppo.minibatch_size here"),
        (
            "train_locally",
            "--gin_bindings=inlining.config.get_observation_processing_layer_creator.quantile_file_dir='vocab'",
            "is --vocab_path here",
        ),
        ("train_locally", "--gin_bindings=PPOAgent.num_epochs=1", "PPOAgent.num_epochs is ppo.num_epochs here"),
        ("train_locally", "--gin_bindings=ppo_agent.PPOAgent.use_gae=True", "has no counterpart here"),
        (
            "generate_default_trace",
            f"{IMPLEMENTATION}.MyConfig",
            "expected one of @configs.InliningConfig, @configs.RegallocEvictionConfig",
        ),
    ],
)
def test_other_spellings_are_refused_with_ours(program: str, flag: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "gin_configs").symlink_to(programs.ROOT / "gin_configs")
    _, said = run(tmp_path, PROGRAMS[program], *REQUIRED[program], flag, status=2)
    assert complaint in said.splitlines()[-1]
    assert said.splitlines()[-1].startswith("error: ") and "Traceback" not in said


def test_the_task_and_the_compiler_must_not_be_contradicted(tmp_path: Path) -> None:
    (tmp_path / "gin_configs").symlink_to(programs.ROOT / "gin_configs")
    (tmp_path / "corpus").mkdir()
    gin = f"--gin_files={RL}/regalloc/gin_configs/common.gin"
    program, required = PROGRAMS["generate_default_trace"], REQUIRED["generate_default_trace"]
    _, said = run(tmp_path, program, *required, gin, "--compile_task=inlining", status=2)
    assert "--compile_task=inlining: the gin settings are for regalloc_eviction" in said.splitlines()[-1]
    _, said = run(
        tmp_path, PROGRAMS["train_locally"], *REQUIRED["train_locally"], gin, "--compile_task=inlining", status=2
    )
    assert "give those of gin_configs/inlining" in said.splitlines()[-1]


def test_every_name_that_is_refused_has_a_successor_that_exists() -> None:
    ours = {
        f"{name}.{field.name}" for classes in ALL_SETTINGS for name, each in classes.items() for field in fields(each)
    }
    for theirs, successor in ml_compiler_opt.GIN_NAMES.items():
        names = re.findall(r"[a-z_]+\.[a-z_]+", successor)
        assert set(names) <= ours, theirs
    assert set(ml_compiler_opt.SETTINGS.values()) <= ours
    page = (programs.ROOT / ml_compiler_opt.PAGE).read_text()
    tables = (ml_compiler_opt.GIN_NAMES, ml_compiler_opt.SETTINGS, ml_compiler_opt.FLAGS, ml_compiler_opt.GIN_FOLDERS)
    for table in tables:
        for name in table:
            assert f"`{name}" in page or f"`--{name}`" in page, name
