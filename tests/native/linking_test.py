"""The plugins in a linker that generates code in several threads: every link gives the same program."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.llvm import inliner_plugin, regalloc_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, sites_of
from compiler_opt.problem import Problem
from compiler_opt.spaces.native import native_blob
from tests.deploy.sources import save_policy
from tests.native import sanitized
from tests.regalloc_networks import random_network
from tests.small_corpus import BUSY_SOURCES, make_busy_corpus

_NUM_MODULES = 6


@pytest.fixture(scope="module")
def place(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules for full LTO and for ThinLTO, and with the links to /dev/null."""
    place = tmp_path_factory.mktemp("modules")
    text = "".join(BUSY_SOURCES.values()) + "static int within(int x) { return use(&x) + x; }"
    for kind in ("full", "thin"):
        (place / kind).mkdir()
        for index in range(_NUM_MODULES):
            source = place / f"{index}.c"
            names = ("called", "again", "alone", "sums", "more", "looped", "summed", "easy")
            renames = "".join(f"#define {name} {name}{index}\n" for name in names)
            calls = (
                f"int top{index}(int x) {{ return within(x) + within(easy(x)) + top{(index + 1) % _NUM_MODULES}(x); }}"
            )
            source.write_text(f"{renames}int use(int *);\nint top{(index + 1) % _NUM_MODULES}(int);\n{text}\n{calls}\n")
            command = [str(toolchain.clang), "-O2", f"-flto={kind}", "-fPIC", "-c", str(source)]
            subprocess.run([*command, "-o", str(place / kind / f"{index}.o")], check=True)
    regalloc_plugin.make_nowhere(place)
    return place


def _link(
    toolchain: Toolchain, place: Path, kind: str, options: Sequence[str], variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Links the modules to `place`/linked."""
    objects = [str(place / kind / f"{index}.o") for index in range(_NUM_MODULES)]
    command = [str(toolchain.tool("ld.lld")), "-shared", "--lto-O2", *options, *objects, "-o", str(place / "linked")]
    return subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=False, timeout=300)


def _linked(
    toolchain: Toolchain, place: Path, kind: str, options: Sequence[str], variables: Mapping[str, str]
) -> bytes:
    (place / "linked").unlink(missing_ok=True)
    result = _link(toolchain, place, kind, options, variables)
    assert (result.returncode, result.stderr) == (0, "")
    return (place / "linked").read_bytes()


@pytest.fixture(params=["regalloc_eviction", "regalloc_priority"])
def problem(request: pytest.FixtureRequest) -> Problem:
    return problems.load(request.param)


def _regalloc_policy(problem: Problem, toolchain: Toolchain, place: Path) -> Path:
    blob = place / f"{problem.name}.mlgo"
    if not blob.exists():
        folder = place / problem.name
        folder.mkdir()
        corpus = make_busy_corpus(folder, str(toolchain.clang))
        blob.write_bytes(problem.decision.native_form(random_network(problem, corpus, toolchain, folder, 1)))
    return blob


def _load_from(library: Path, place: Path) -> str:
    """Copies the register allocator's plugin to `place`; returns the option with which lld loads it."""
    shutil.copy(library, place / "regalloc.so")
    return f"--load-pass-plugin={place / 'regalloc.so'}"


@pytest.mark.ci
@pytest.mark.parametrize(
    ("partitions", "links"), [(4, 4), pytest.param(8, 20, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_every_link_allocates_the_same_registers(
    partitions: int, links: int, problem: Problem, toolchain: Toolchain, place: Path
) -> None:
    options = [f"--lto-partitions={partitions}"]
    load = _load_from(regalloc_plugin.regalloc_plugin(toolchain), place)
    variables = regalloc_plugin.environment(policy=_regalloc_policy(problem, toolchain, place))
    programs = [_linked(toolchain, place, "full", [*options, load], variables) for _ in range(links)]
    assert len(set(programs)) == 1
    assert programs[0] != _linked(toolchain, place, "full", options, os.environ)


def test_a_log_needs_a_single_code_generator(problem: Problem, toolchain: Toolchain, place: Path) -> None:
    load = _load_from(regalloc_plugin.regalloc_plugin(toolchain), place)
    policy, log = _regalloc_policy(problem, toolchain, place), place / "log"
    variables = regalloc_plugin.environment(policy=policy, log=log, strict=False)
    result = _link(toolchain, place, "full", [load, "--lto-partitions=4"], variables)
    assert result.returncode != 0
    assert "but this process runs several; link with -Wl,--lto-partitions=1" in result.stderr
    # With one thread the log is complete, although lld exits without running static destructors.
    log.unlink()
    _linked(toolchain, place, "full", [load], variables)
    assert log.stat().st_size > 1 << 16 and log.read_bytes().endswith(b"\n")


@pytest.mark.ci
def test_thinlto_backends_use_the_policy_only_if_enabled(toolchain: Toolchain, place: Path) -> None:
    """They inline functions imported from other modules; clang >= 23 loads plugins in these backends, too."""
    blob = place / "inliner.mlgo"
    blob.write_bytes(native_blob(save_policy(place / "inliner")))
    load = f"--load-pass-plugin={inliner_plugin.inliner_plugin(toolchain)}"
    plain = _linked(toolchain, place, "thin", ["--thinlto-jobs=4"], os.environ)
    log = place / "inliner.log"
    made = _linked(
        toolchain, place, "thin", [load, "--thinlto-jobs=4"], inliner_plugin.environment(policy=blob, log=log)
    )
    assert made == plain and not log.exists()
    asked = [inliner_plugin.environment(policy=blob, log=path, thinlto=True) for path in (None, None, None, log)]
    programs = {_linked(toolchain, place, "thin", [load, "--thinlto-jobs=4"], variables) for variables in asked}
    assert len(programs) == 1
    read = inliner_plugin.read_log(log, toolchain.problems["inlining"].features)
    assert read is not None and len(read.advice) >= _NUM_MODULES


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["full", "thin"])
def test_every_link_replays_the_same_decisions(kind: str, toolchain: Toolchain, place: Path) -> None:
    load = f"--load-pass-plugin={inliner_plugin.inliner_plugin(toolchain)}"
    log, path, options = place / "inliner.log", place / "decisions.mlgo", [load, "--thinlto-jobs=4"]
    plain = _linked(toolchain, place, kind, options, inliner_plugin.environment(policy=None, log=log, thinlto=True))
    features = toolchain.problems["inlining"].features
    read = inliner_plugin.read_log(log, features)
    assert read is not None
    # In a ThinLTO link the log has several modules, and imported functions may be in several: their first decisions.
    first = {site: 1 - advice for site, advice in zip(sites_of(read.call_sites), read.advice.tolist(), strict=True)}
    decisions = Decisions({site: advice for site, advice in first.items() if site.ordinal == 0})
    path.write_bytes(decisions.native_form(major=toolchain.version[0]))
    variables = [
        inliner_plugin.environment(policy=None, decisions=path, log=each, thinlto=True) for each in (None, None, log)
    ]
    programs = {_linked(toolchain, place, kind, options, each) for each in variables}
    assert len(programs) == 1 and plain not in programs
    replayed = inliner_plugin.read_log(log, features)
    assert replayed is not None and replayed.call_sites.replayed is not None and replayed.call_sites.replayed.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["regalloc_eviction", "regalloc_priority", "inlining"])
def test_threads_have_no_data_races(name: str, toolchain: Toolchain, place: Path, tmp_path: Path) -> None:
    if name == "inlining":
        blob = place / "inliner.mlgo"
        blob.write_bytes(native_blob(save_policy(place / "inliner")))
        instrumented = sanitized.build(inliner_plugin.INLINER, "thread", toolchain, tmp_path)
        variables = inliner_plugin.environment(policy=blob, log=place / "tsan.log", thinlto=True)
        kind, options = "thin", "--thinlto-jobs=4"
    else:
        regalloc_plugin.make_nowhere(tmp_path)
        instrumented = sanitized.build(regalloc_plugin.REGALLOC, "thread", toolchain, tmp_path)
        variables = regalloc_plugin.environment(policy=_regalloc_policy(problems.load(name), toolchain, place))
        kind, options = "full", "--lto-partitions=8"
    load = f"--load-pass-plugin={instrumented.library}"
    _linked(toolchain, place, kind, [load, options], {**variables, **instrumented.variables})
    assert instrumented.findings() == []
