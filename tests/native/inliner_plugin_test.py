"""The inliner plugin in real compilers: its decisions, its log, and that no wrong setting breaks a build."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.llvm import inliner_plugin, plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import uniforms
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.native import embedded_source, native_blob

_SOURCE = """
int get(int);
static int choose(int x) {
  if (x > 3) return get(x) + get(x + 1) * 2;
  for (int i = 0; i < x; i++) get(i);
  return 7;
}
int one(int y) { return choose(y) + choose(y + 1); }
int two(int y) { return choose(y) * one(y); }
__attribute__((noinline)) int three(int y) { return one(y); }
__attribute__((always_inline)) static inline int four(int y) { return get(y) + choose(3); }
int five(int y) { return four(y) + three(y); }
"""


def _network(seed: int, features: Sequence[str] = FEATURES) -> NetworkWeights:
    rng = np.random.default_rng(seed)
    hidden = 8
    return NetworkWeights(
        tuple(features),
        tuple(np.array([0.0, 1.0, 2.0, 5.0, 30.0]) for _ in features),
        (
            rng.normal(size=(3 * len(features), hidden)).astype(np.float32),
            rng.normal(size=(hidden, 2)).astype(np.float32),
        ),
        (rng.normal(size=hidden).astype(np.float32), np.zeros(2, np.float32)),
    )


def _blob(path: Path, seed: int = 1, features: Sequence[str] = FEATURES) -> Path:
    path.write_bytes(native_blob(_network(seed, features)))
    return path


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Path:
    return inliner_plugin.inliner_plugin(toolchain)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.c"
    path.write_text(_SOURCE)
    return path


class _Compiler:
    """Compiles the source with a plugin, which environment variables configure."""

    def __init__(self, toolchain: Toolchain, library: Path, source: Path):
        self.command = [str(toolchain.clang), "-Oz", "-c", str(source)]
        self.output = source.with_suffix(".o")
        self.load = [plugin.load_option(library)]

    def run(self, variables: Mapping[str, str], status: int = 0) -> tuple[bytes, str]:
        """Returns the object (empty if there is none) and standard error."""
        self.output.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGO_")}
        result = subprocess.run(
            [*self.command, "-o", str(self.output), *self.load],
            env=environment | dict(variables),
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == status, result.stderr
        return self.output.read_bytes() if self.output.exists() else b"", result.stderr

    def plain(self) -> bytes:
        subprocess.run([*self.command, "-o", str(self.output)], check=True)
        return self.output.read_bytes()


@pytest.fixture
def compiler(toolchain: Toolchain, library: Path, source: Path) -> _Compiler:
    return _Compiler(toolchain, library, source)


@pytest.mark.slow
@pytest.mark.parametrize("cpp", ["clang++", "g++"])
def test_it_compiles_without_warnings(cpp: str, toolchain: Toolchain, tmp_path: Path) -> None:
    command = str(toolchain.tool("clang++")) if cpp == "clang++" else shutil.which("g++")
    assert command is not None, "g++ is not installed; ./run_tests.sh installs what the tests need"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    definitions, headers = plugin.llvm_definitions(toolchain), ["-isystem", str(toolchain.plugin_headers)]
    subprocess.run(
        [
            command,
            *plugin.FLAGS,
            *warnings,
            *definitions,
            *headers,
            "-c",
            str(inliner_plugin.SOURCES[0]),
            "-o",
            str(tmp_path / "a.o"),
        ],
        check=True,
    )


@pytest.mark.both_compilers
def test_default_decisions_give_the_plain_object(compiler: _Compiler, toolchain: Toolchain) -> None:
    log = compiler.output.with_name("log")
    made, said = compiler.run({"MLGO_INLINER_MODE": "default", "MLGO_INLINER_LOG": str(log)})
    assert said == ""
    assert made == compiler.plain()
    read = inliner_plugin.read_log(log, toolchain.problems["inlining"].features)
    assert read is not None
    assert read.logits is None
    names = [read.call_sites.functions[index] for index in read.call_sites.callees]
    # There is no decision on calls that must, or must not, be inlined.
    assert set(names) == {"choose", "one"}


@pytest.mark.both_compilers
def test_a_policy_decides_as_in_python(compiler: _Compiler, toolchain: Toolchain, tmp_path: Path) -> None:
    features = toolchain.problems["inlining"].features
    log = tmp_path / "log"
    variables = {"MLGO_INLINER_LOG": str(log), "MLGO_INLINER_LOG_DEFAULT": "1"}
    decided = set()
    for seed in range(4):
        variables["MLGO_INLINER_POLICY"] = str(_blob(tmp_path / "policy", seed))
        for temperature in (0.0, 2.5):
            variables |= {"MLGO_INLINER_TEMPERATURE": str(temperature), "MLGO_INLINER_SEED": str(seed + 2**63)}
            compiler.run(variables)
            read = inliner_plugin.read_log(log, features)
            assert read is not None
            assert read.logits is not None
            arrays = {
                spec.name: column
                for spec, column in zip(features, np.frombuffer(read.observations, "i8").reshape(-1, 38).T, strict=True)
            }
            expected = BinaryPolicy(_network(seed)).logits(arrays)
            np.testing.assert_allclose(read.logits, expected, rtol=1e-4, atol=1e-4)
            preference = read.logits[:, 1].astype(float) - read.logits[:, 0].astype(float)
            if temperature:
                uniform = uniforms(seed + 2**63)
                draws = np.array([uniform() for _ in preference])
                np.testing.assert_array_equal(read.advice, draws < 1 / (1 + np.exp(-preference / temperature)))
            else:
                np.testing.assert_array_equal(read.advice, preference > 0)
            # Advice against inlining is always followed.
            assert not (read.call_sites.inlined & (read.advice == 0)).any()
            decided |= set(read.advice.tolist())
    assert decided == {0, 1}


def test_the_same_seed_gives_the_same_object(compiler: _Compiler, tmp_path: Path) -> None:
    variables = {"MLGO_INLINER_POLICY": str(_blob(tmp_path / "policy")), "MLGO_INLINER_TEMPERATURE": "9"}
    objects = [compiler.run({**variables, "MLGO_INLINER_SEED": str(seed)})[0] for seed in (1, 1, 2, 3, 4, 5)]
    assert objects[0] == objects[1]
    assert len(set(objects)) > 1


def test_a_built_in_policy_decides_like_the_same_file(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    generated = tmp_path / "policy.cpp"
    generated.write_text(embedded_source(native_blob(_network(3))))
    library = tmp_path / "own.so"
    plugin.user_cache().build(toolchain, inliner_plugin.INLINER, library, [generated])
    embedded = _Compiler(toolchain, library, source)
    made, said = embedded.run({})
    assert said == ""
    given = _Compiler(toolchain, inliner_plugin.inliner_plugin(toolchain), source)
    expected = given.run({"MLGO_INLINER_POLICY": str(_blob(tmp_path / "policy", 3))})
    assert made == expected[0]


def _make_unusable(fault: str, folder: Path) -> dict[str, str]:
    policy = _blob(folder / "policy")
    variables = {"MLGO_INLINER_POLICY": str(policy)}
    if fault == "none":
        return {}
    if fault == "missing":
        policy.unlink()
    elif fault == "empty":
        policy.write_bytes(b"")
    elif fault == "folder":
        policy.unlink()
        policy.mkdir()
    elif fault == "truncated":
        policy.write_bytes(policy.read_bytes()[:-8])
    elif fault == "damaged":
        content = bytearray(policy.read_bytes())
        content[len(content) // 2] ^= 1
        policy.write_bytes(content)
    elif fault == "unknown feature":
        _blob(policy, features=("callsite_cost", "unheard_of"))
    else:
        name, value = fault.split("=")
        variables[f"MLGO_INLINER_{name}"] = value
    return variables


_FAULTS = {
    "none": "no policy",
    "missing": "No such file",
    "empty": "empty",
    "folder": "not a regular file",
    "truncated": "truncated",
    "damaged": "damaged",
    "unknown feature": "unheard_of",
    "MODE=both": "expected policy or default, found both",
    "TEMPERATURE=hot": "found hot",
    "TEMPERATURE=-1": "found -1",
    "TEMPERATURE=inf": "found inf",
    "TEMPERATURE=nan": "found nan",
    "SEED=-3": "found -3",
    "SEED=18446744073709551616": "found 18446744073709551616",
    "SEED=1x": "found 1x",
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_invalid_settings_are_an_error_only_if_strict(fault: str, compiler: _Compiler, tmp_path: Path) -> None:
    variables = _make_unusable(fault, tmp_path)
    made, said = compiler.run(variables)
    assert made == compiler.plain()
    assert said.startswith("warning: mlgo: ")
    assert said.endswith("; compiling with the default heuristic\n")
    assert _FAULTS[fault] in said
    assert said.count("\n") == 1
    made, said = compiler.run({**variables, "MLGO_INLINER_STRICT": "1"}, status=1)
    assert made == b""
    assert said.startswith("error: mlgo: ")
    assert _FAULTS[fault] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("fault", ["no such folder", "a folder", "disk full"])
def test_a_log_that_cannot_be_written_is_an_error_only_if_strict(
    fault: str, compiler: _Compiler, tmp_path: Path
) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    log = {"no such folder": tmp_path / "missing" / "log", "a folder": tmp_path, "disk full": tmp_path / "full"}[fault]
    variables = {"MLGO_INLINER_MODE": "default", "MLGO_INLINER_LOG": str(log)}
    made, said = compiler.run(variables)
    assert made == compiler.plain()
    assert said.startswith(f"warning: mlgo: cannot write the log {log}")
    assert said.count("\n") == 1
    made, said = compiler.run({**variables, "MLGO_INLINER_STRICT": "1"}, status=1)
    assert made == b""
    assert said.startswith(f"error: mlgo: cannot write the log {log}")


def test_no_log_without_decisions(compiler: _Compiler, source: Path, tmp_path: Path) -> None:
    source.write_text("int alone(int x) { return x; }")
    log = tmp_path / "log"
    compiler.run({"MLGO_INLINER_MODE": "default", "MLGO_INLINER_LOG": str(log)})
    assert not log.exists()
    assert inliner_plugin.read_log(log, ()) is None


@pytest.mark.ci
def test_a_log_larger_than_the_buffer_is_complete(
    compiler: _Compiler, source: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    callers = "\n".join(f"int c{n}(int y) {{ return choose(y) + choose(y * {n}) - {n}; }}" for n in range(2200))
    source.write_text(_SOURCE + callers)
    log = tmp_path / "log"
    compiler.run({"MLGO_INLINER_MODE": "default", "MLGO_INLINER_LOG": str(log)})
    read = inliner_plugin.read_log(log, toolchain.problems["inlining"].features)
    assert read is not None
    assert log.stat().st_size > 1 << 20
    assert {f"c{n}" for n in range(2200)} <= set(read.call_sites.functions)
    assert len(read.advice) >= 4400


@pytest.mark.both_compilers
def test_it_decides_in_a_linker(toolchain: Toolchain, library: Path, tmp_path: Path) -> None:
    features = toolchain.problems["inlining"].features
    parts = {"a": _SOURCE, "b": "int get(int x) { return x; } int five(int); int main(void) { return five(4); }"}
    for kind in ("full", "thin"):
        objects = []
        for name, text in parts.items():
            (tmp_path / f"{name}.c").write_text(text)
            objects.append(str(tmp_path / f"{name}.o"))
            command = [str(toolchain.clang), "-Oz", f"-flto={kind}", "-c", str(tmp_path / f"{name}.c")]
            subprocess.run([*command, "-o", objects[-1]], check=True)
        log = tmp_path / f"{kind}.log"
        program = tmp_path / kind
        blob = _blob(tmp_path / "policy")
        linker = [f"-fuse-ld={toolchain.tool('ld.lld')}", f"-Wl,--load-pass-plugin={library}", "-Wl,--thinlto-jobs=2"]
        subprocess.run(
            [str(toolchain.clang), f"-flto={kind}", *objects, *linker, "-o", str(program)],
            env=inliner_plugin.environment(policy=blob, log=log, thinlto=True),
            check=True,
        )
        read = inliner_plugin.read_log(log, features)
        assert read is not None
        assert read.logits is not None
        assert {"one", "two"} & set(read.call_sites.functions)
        assert program.exists()
