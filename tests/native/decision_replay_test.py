"""Replaying decisions in real compilers: which decisions a file reaches, and what happens to a bad one."""

import dataclasses
import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.compilation import DefaultPolicy
from compiler_opt.collect.rollout import Rollout, RolloutSettings, rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import FEATURES, PROBLEM
from compiler_opt.errors import PolicyError
from compiler_opt.llvm import inliner_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import record_dtype
from compiler_opt.policies.decisions import (
    Base,
    Decisions,
    OverridingPolicy,
    Site,
    sites_of,
)
from compiler_opt.policies.policy import ConstantPolicy, Policy, RandomPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.native import native_blob
from compiler_opt.tensor_spec import TensorSpec
from tests.deploy.sources import save_policy
from tests.real_observations import recurrent, weights_for
from tests.small_corpus import SOURCES, make_corpus


@pytest.fixture(scope="module")
def corpus(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), str(toolchain.clang), SOURCES)


@pytest.fixture
def learned(tmp_path: Path) -> BinaryPolicy:
    save_policy(tmp_path / "policy")
    return BinaryPolicy(NetworkWeights.load(tmp_path / "policy"))


def _decode(features: Sequence[TensorSpec], observations: bytes) -> dict[str, np.ndarray]:
    """Scalar features `[T]` by name."""
    records = np.frombuffer(observations, record_dtype(tuple(features)))
    return {spec.name: records[spec.name].reshape(-1) for spec in features}


class _Compiler:
    """Compiles the modules of a corpus."""

    def __init__(self, corpus: Corpus, toolchain: Toolchain, folder: Path):
        self.modules = {module.name: module for module in corpus.modules}
        self._toolchain = toolchain
        self._folder = folder

    def compile(self, name: str, policy: Policy, **settings: object) -> tuple[bytes, Rollout]:
        """The object, and the rollout."""
        kept = self._folder / "kept.o"
        given = RolloutSettings(record_call_sites=True, **settings)  # type: ignore[arg-type]
        result = rollout(self.modules[name], policy, PROBLEM, self._toolchain, settings=given, keep_object=kept)
        assert result.failure is None
        return kept.read_bytes(), result


@pytest.fixture
def compiler(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> _Compiler:
    return _Compiler(corpus, toolchain, tmp_path)


def _sites(result: Rollout) -> list[Site]:
    assert result.trajectory is not None and isinstance(result.trajectory.sites, CallSites)
    return sites_of(result.trajectory.sites)


def _replayed(result: Rollout) -> list[bool]:
    assert result.trajectory is not None and isinstance(result.trajectory.sites, CallSites)
    assert result.trajectory.sites.replayed is not None
    return result.trajectory.sites.replayed.tolist()


def _decisions(result: Rollout) -> Decisions:
    assert result.trajectory is not None
    return Decisions(zip(_sites(result), result.trajectory.advice.tolist(), strict=True))


_MODULES = ("shapes/area.cpp.o", "plain/list.c.o")


def test_without_decisions_the_base_decides(compiler: _Compiler, learned: BinaryPolicy) -> None:
    for name in _MODULES:
        for base in (learned, DefaultPolicy(PROBLEM)):
            made, result = compiler.compile(name, OverridingPolicy(base, Decisions()))
            expected, plain = compiler.compile(name, base)
            assert made == expected
            assert not any(_replayed(result)) and _sites(result) == _sites(plain)


@pytest.mark.ci
@pytest.mark.both_compilers
def test_any_decisions_can_be_replayed(compiler: _Compiler, learned: BinaryPolicy) -> None:
    """Those of policies that decide over the channel, which has no bodies."""
    default = DefaultPolicy(PROBLEM)
    for name in _MODULES:
        made = set()
        # The bodies are the same whatever is decided.
        bodies = {site.caller: site.body for site in _sites(compiler.compile(name, default)[1])}
        for policy in (ConstantPolicy(0), ConstantPolicy(1), RandomPolicy(0.5)):
            expected, recorded = compiler.compile(name, policy)
            assert recorded.trajectory is not None and isinstance(recorded.trajectory.sites, CallSites)
            theirs = recorded.trajectory.sites
            known = np.array([bodies.get(theirs.functions[index], 0) for index in theirs.callers], np.uint64)
            sites = sites_of(dataclasses.replace(theirs, bodies=known))
            decisions = Decisions(zip(sites, recorded.trajectory.advice.tolist(), strict=True))
            for base in (learned, default):
                ours, result = compiler.compile(name, OverridingPolicy(base, decisions))
                assert ours == expected
                assert all(_replayed(result)) and _decisions(result) == decisions
            made.add(expected)
        assert len(made) > 1


def test_a_recurrent_base_remembers_decisions_that_are_not_its_own(toolchain: Toolchain, tmp_path: Path) -> None:
    """Also where nothing is logged, and the plugin computes no more than it needs."""
    features = toolchain.require("inlining").features
    source, log, made = tmp_path / "source.cpp", tmp_path / "log", tmp_path / "made.o"
    source.write_text(SOURCES["shapes/area.cpp"])
    load = load_option(inliner_plugin.inliner_plugin(toolchain))
    command = [str(toolchain.clang), "-Oz", "-c", str(source), "-o", str(made), load]

    def compile_with(**settings: Path | None) -> tuple[bytes, inliner_plugin.InlinerLog | None]:
        log.unlink(missing_ok=True)
        variables = inliner_plugin.environment(**settings, strict=True)  # type: ignore[arg-type]
        subprocess.run(command, env=variables, check=True)
        return made.read_bytes(), inliner_plugin.read_log(log, features) if log.exists() else None

    _, read = compile_with(policy=None, log=log)
    assert read is not None
    seen = _decode(features, read.observations)
    weights = recurrent(weights_for({name: seen[name] for name in FEATURES}, hidden=(4,)), 8)
    weights.biases[-1][1] -= np.median(np.diff(BinaryPolicy(weights).logits(seen)))
    policy, path = tmp_path / "network.mlgo", tmp_path / "decisions.mlgo"
    policy.write_bytes(native_blob(weights))
    _, read = compile_with(policy=policy, log=log)
    assert read is not None
    changed = dict(list(zip(sites_of(read.call_sites), (1 - read.advice).tolist(), strict=True))[::2])
    base = Base(weights, policy.read_bytes())
    path.write_bytes(Decisions(changed).native_form(major=toolchain.version[0], base=base))
    logged, read = compile_with(policy=policy, decisions=path, log=log)
    assert read is not None and read.call_sites.replayed is not None and read.logits is not None
    replayed = read.call_sites.replayed
    assert replayed.any() and not replayed.all()
    expected = BinaryPolicy(weights).logits(_decode(features, read.observations))
    np.testing.assert_allclose(read.logits, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(read.advice[~replayed], expected.argmax(axis=1)[~replayed])
    assert compile_with(policy=policy, decisions=path)[0] == logged


_CHANGED = """
struct box { int a; int b; };
static int area(const struct box *x, int k) { return x->a * x->b / k + x->a % (k + 3); }
int first(struct box *x) { return area(x, 2) + area(x, 5); }
int second(struct box *x) { BODY }
"""


def test_only_a_changed_function_falls_back(toolchain: Toolchain, tmp_path: Path) -> None:
    texts = {"old": "return area(x, 3);", "constant": "return area(x, 4);", "new": "return x->a ? area(x, 3) : 7;"}
    sources = {f"p/{name}.c": _CHANGED.replace("BODY", body) for name, body in texts.items()}
    compiler = _Compiler(make_corpus(tmp_path, str(toolchain.clang), sources), toolchain, tmp_path)
    default = DefaultPolicy(PROBLEM)
    _, old = compiler.compile("p/old.c.o", default)
    decisions = Decisions(dict.fromkeys(_sites(old), 0))
    assert {site.caller for site in decisions} == {"first", "second"}
    # Another constant is the same body: opcodes, calls and blocks.
    for name, callers in (("old", {"first", "second"}), ("constant", {"first", "second"}), ("new", {"first"})):
        _, result = compiler.compile(f"p/{name}.c.o", OverridingPolicy(default, decisions))
        pairs = list(zip(_sites(result), _replayed(result), strict=True))
        assert {site.caller for site, replayed in pairs if replayed} == callers
        assert {site.caller for site, _ in pairs} == {"first", "second"}


def test_debug_information_changes_no_body(compiler: _Compiler, toolchain: Toolchain, tmp_path: Path) -> None:
    name, default = "shapes/area.cpp.o", DefaultPolicy(PROBLEM)
    corpus = make_corpus(
        tmp_path, str(toolchain.clang), {"shapes/area.cpp": SOURCES["shapes/area.cpp"]}, options=["-g"]
    )
    _, with_debug_information = _Compiler(corpus, toolchain, tmp_path).compile(name, default)
    assert _sites(with_debug_information) == _sites(compiler.compile(name, default)[1])


def test_a_function_of_two_modules_gets_the_same_decisions(compiler: _Compiler) -> None:
    names = ("shapes/area.cpp.o", "shapes/edge.cpp.o")
    default = DefaultPolicy(PROBLEM)
    sites = [set(_sites(compiler.compile(name, default)[1])) for name in names]
    shared = {site for site in sites[0] & sites[1] if "twice" in site.caller}
    assert shared
    policy = OverridingPolicy(default, Decisions(dict.fromkeys(shared, 0)))
    for name in names:
        _, result = compiler.compile(name, policy)
        assert {
            site for site, is_replayed in zip(_sites(result), _replayed(result), strict=True) if is_replayed
        } == shared


def test_what_the_default_would_do_is_recorded_on_request(compiler: _Compiler, learned: BinaryPolicy) -> None:
    name = "shapes/area.cpp.o"
    _, plain = compiler.compile(name, learned)
    _, asked = compiler.compile(name, OverridingPolicy(learned, Decisions()), record_default=True)
    _, never = compiler.compile(
        name, OverridingPolicy(DefaultPolicy(PROBLEM), Decisions(dict.fromkeys(_sites(plain), 0)))
    )
    assert plain.trajectory is not None and plain.trajectory.default_advice is None
    assert asked.trajectory is not None and asked.trajectory.default_advice is not None
    assert asked.trajectory.advice.tolist() == plain.trajectory.advice.tolist()
    assert never.trajectory is not None and never.trajectory.default_advice is not None
    assert any(never.trajectory.default_advice) and 0 in never.trajectory.advice[np.array(_replayed(never))]
    assert len(asked.trajectory.default_advice) == len(asked.trajectory)


def test_unsuitable_policies_are_refused(compiler: _Compiler, learned: BinaryPolicy) -> None:
    name, nothing = "plain/list.c.o", Decisions()
    with pytest.raises(PolicyError, match="cannot decide within the compiler"):
        compiler.compile(name, OverridingPolicy(ConstantPolicy(0), nothing))
    with pytest.raises(PolicyError, match="only the inliner's plugin replays decisions"):
        compiler.compile(name, OverridingPolicy(learned, nothing), backend="channel")
    with pytest.raises(PolicyError, match=r"expected a greedy base, found the temperature 1.0"):
        compiler.compile(name, OverridingPolicy(dataclasses.replace(learned, temperature=1.0), nothing))
    with pytest.raises(PolicyError, match="for LLVM 18, but the compiler has LLVM"):
        compiler.compile(name, OverridingPolicy(learned, Decisions({}, {"llvm": "18.1.8"})))
    with pytest.raises(PolicyError, match="made with the default decisions, but this is the policy"):
        compiler.compile(name, OverridingPolicy(learned, Decisions({}, {"policy": "default"})))


@pytest.mark.ci
def test_workers_replay_decisions(compiler: _Compiler, learned: BinaryPolicy, toolchain: Toolchain) -> None:
    name = "shapes/area.cpp.o"
    _, base = compiler.compile(name, learned)
    decisions = Decisions({site: 1 - advice for site, advice in _decisions(base).items()})
    _, expected = compiler.compile(name, OverridingPolicy(learned, decisions))
    with WorkerPool(toolchain, PROBLEM, num_workers=1) as pool:
        job = Job(compiler.modules[name], OverridingPolicy(learned, decisions))
        [(_, result)] = pool.rollouts([job])
    assert result.failure is None and result.measurement == expected.measurement
    assert _decisions(result) == _decisions(expected) != _decisions(base)


def _damaged(fault: str, blob: bytes) -> bytes:
    if fault == "empty":
        return b""
    if fault == "truncated":
        return blob[:-8]
    if fault == "bit":
        return blob[:60] + bytes([blob[60] ^ 16]) + blob[61:]
    if fault == "unsorted":
        blob = blob[:48] + b"\xff" * 8 + blob[56:]
    elif fault == "other LLVM":
        blob = blob[:24] + struct.pack("<I", 99) + blob[28:]
    elif fault == "other policy":
        blob = blob[:40] + struct.pack("<2I", 0xABC, 100) + blob[48:]
    return blob[:12] + struct.pack("<I", zlib.crc32(blob[16:])) + blob[16:]


_FAULTS = {
    "missing": "No such file or directory",
    "empty": "empty, or not a regular file",
    "truncated": "the decision file is truncated",
    "bit": "its checksum does not match",
    "unsorted": "not sorted",
    "other LLVM": "made for LLVM 99, but this is LLVM",
    "other policy": "made with the policy 00000abc-100, but this is the default decisions",
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_bad_file_is_named_and_the_build_goes_on(fault: str, toolchain: Toolchain, tmp_path: Path) -> None:
    source, path = tmp_path / "source.c", tmp_path / "decisions.mlgo"
    source.write_text(_CHANGED.replace("BODY", "return area(x, 3);"))
    decisions = Decisions({Site(caller, 1, "area", n): 1 for caller in ("f", "g") for n in range(2)})
    blob = decisions.native_form(major=toolchain.version[0])
    library = inliner_plugin.inliner_plugin(toolchain)
    command = [str(toolchain.clang), "-Oz", "-c", str(source), "-o", str(tmp_path / "made.o"), load_option(library)]

    def compile_with(content: bytes | None, strict: bool) -> tuple[int, str]:
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        variables = inliner_plugin.environment(policy=None, decisions=path, strict=strict)
        result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        return result.returncode, result.stderr

    content = None if fault == "missing" else _damaged(fault, blob)
    assert compile_with(blob, True) == (0, "")
    plain = (tmp_path / "made.o").read_bytes()
    status, said = compile_with(content, False)
    assert status == 0 and (tmp_path / "made.o").read_bytes() == plain
    assert said.startswith(f"warning: mlgo: decision file {path}: ") and said.count("\n") == 1
    assert _FAULTS[fault] in said and said.endswith("; continuing without its decisions\n")
    status, said = compile_with(content, True)
    assert status == 1 and said.startswith(f"error: mlgo: decision file {path}: ") and _FAULTS[fault] in said
