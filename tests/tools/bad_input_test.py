"""What a user may get wrong, at every entry point that can meet it.

Each time: exit status 2, nothing on stdout, one line that names the file and says what to do, no traceback; no output,
no folder for it, and nothing in the temporary folder. That a full disk leaves the last checkpoint is shown in
tests/rl/training_test.py.

Which compiler it is makes no difference to a mistake, so all of this is done with the older one.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.policies.network import NetworkWeights
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.problems.inlining.signature import FEATURES
from tests.small_corpus import SOURCES, make_small_corpus

ROOT = Path(__file__).parents[2]
CLANG, NEWER_CLANG = "/usr/bin/clang-19", "/usr/bin/clang-22"

SCRIPTS = {
    "deploy": "compiler_opt/tools/deploy.py",
    "doctor": "compiler_opt/tools/doctor.py",
    "fetch_corpus": "compiler_opt/tools/fetch_corpus.py",
    "extract_ir": "compiler_opt/tools/extract_ir.py",
    "generate_default_trace": "compiler_opt/tools/generate_default_trace.py",
    "generate_vocab": "compiler_opt/tools/generate_vocab.py",
    "train_bc": "compiler_opt/rl/train_bc.py",
    "train_locally": "compiler_opt/rl/train_locally.py",
    "evaluate": "compiler_opt/tools/evaluate.py",
    "export_policy": "compiler_opt/tools/export_policy.py",
    "verify_corpus": "compiler_opt/tools/verify_corpus.py",
    "make_corpus": "compiler_opt/tools/make_corpus.py",
    "combine_training_corpus": "compiler_opt/tools/combine_training_corpus.py",
    "corpus_stats": "compiler_opt/tools/corpus_stats.py",
}

GOOD: Mapping[str, Mapping[str, str]] = {
    "deploy": {"clang_path": CLANG, "policy": "policy", "output": "out/prefix"},
    "doctor": {"clang_path": CLANG},
    "fetch_corpus": {"clang_path": CLANG, "output_dir": "out/corpus", "set": "smoke", "cache_dir": "out/cache"},
    "extract_ir": {"input": "build/compile_commands.json", "output_dir": "out/corpus"},
    "generate_default_trace": {"clang_path": CLANG, "data_path": "corpus", "output_path": "out/trace"},
    "generate_vocab": {"input": "trace", "output_dir": "out/vocabulary"},
    "train_bc": {"data_path": "trace", "vocab_path": "vocabulary", "root_dir": "out/run"},
    "train_locally": {
        "clang_path": CLANG,
        "data_path": "corpus",
        "vocab_path": "vocabulary",
        "root_dir": "out/run",
        "gin_files": str(ROOT / "gin_configs/inlining/ppo_nn_agent.gin"),
    },
    "evaluate": {"clang_path": CLANG, "data_path": "corpus", "policy_path": "policy", "output_path": "out/results"},
    "export_policy": {"policy_path": "policy", "output_path": "out/exported", "format": "native"},
    "verify_corpus": {"clang_path": CLANG, "data_path": "corpus", "original_dir": "build"},
    "make_corpus": {"input_dir": "corpus", "output_dir": "out/corpus", "default_args": "-cc1 -Oz"},
    "combine_training_corpus": {"root_dir": "together"},
    "corpus_stats": {"clang_path": CLANG, "data_path": "corpus", "output_path": "out/statistics"},
}
"""Flags with which each would do its work, in the folder of the fixture `place`; a mistake replaces one of them."""

OUTPUT_FLAG = {
    "deploy": "output",
    "fetch_corpus": "output_dir",
    "extract_ir": "output_dir",
    "generate_default_trace": "output_path",
    "generate_vocab": "output_dir",
    "train_bc": "root_dir",
    "train_locally": "root_dir",
    "evaluate": "output_path",
    "export_policy": "output_path",
    "make_corpus": "output_dir",
    "corpus_stats": "output_path",
}


@dataclasses.dataclass(frozen=True)
class Mistake:
    """What is wrong, in which flags; `words` stand in the message, the name of the file and the remedy among them."""

    name: str
    tools: tuple[str, ...]
    flags: Mapping[str, str]
    words: tuple[str, ...]


WITH_CLANG = ("deploy", "doctor", "fetch_corpus", "generate_default_trace", "train_locally", "evaluate")
WITH_CORPUS = ("generate_default_trace", "train_locally", "evaluate")
INSTALL = "install e.g. the packages clang-19 llvm-19 lld-19, or give another by --clang_path"
REMAKE = "extract the corpus again"


def clang(name: str, path: str, *words: str, tools: tuple[str, ...] = WITH_CLANG) -> Mistake:
    return Mistake(f"clang {name}", tools, {"clang_path": path}, (path, *words))


def corpus(name: str, path: str, *words: str, tools: tuple[str, ...] = WITH_CORPUS) -> Mistake:
    return Mistake(f"corpus {name}", tools, {"data_path": path}, (path, *words))


MISTAKES = (
    clang("missing", "no/such/clang", "no such file", INSTALL),
    clang("not on PATH", "clang-99", "no such program on PATH", INSTALL, tools=("doctor",)),
    clang("not executable", "clang-not-executable", "not executable; check its permissions"),
    clang("is a folder", "corpus", "found a folder", INSTALL, tools=("doctor",)),
    clang("too old", "clang-old", "expected clang >= 17", "found 14.0.6", INSTALL),
    clang("is another program", "clang-other", "expected clang", INSTALL, tools=("doctor",)),
    corpus(
        "missing",
        "no/such/corpus",
        "no such file",
        "fetch_corpus.py",
        "extract_ir.py",
        tools=(*WITH_CORPUS, "verify_corpus", "corpus_stats"),
    ),
    corpus(
        "folder without description",
        "build",
        "corpus_description.json: no such file",
        "fetch_corpus.py",
        tools=("evaluate",),
    ),
    corpus("not JSON", "corpora/not-json", "expected JSON", REMAKE),
    corpus("lacks modules", "corpora/no-modules", "expected the key 'modules'", REMAKE),
    corpus("empty", "corpora/empty", "the corpus is empty", REMAKE),
    corpus("leaves its folder", "corpora/parent", "'../../x'", "stays inside", REMAKE),
    corpus("absolute path", "corpora/absolute", "'/etc/passwd'", "stays inside", REMAKE),
    corpus("not UTF-8", "corpora/not-utf8", "expected JSON", REMAKE, tools=("evaluate",)),
    corpus("huge", "corpora/huge", "expected at most 268435456 bytes, found 4294967296", REMAKE, tools=("evaluate",)),
    corpus(
        "link that leaves", "corpora/link", "plain/data.c.o.cmd: is a link that leaves", REMAKE, tools=("evaluate",)
    ),
    Mistake(
        "flag that no corpus may use",
        ("train_locally", "evaluate"),
        {"gin_bindings": "problem_config.flags_to_add = ['-load', 'x.so']"},
        ("problem_config.flags_to_add: '-load' is not an option that a corpus may use", "--trust_corpus"),
    ),
    corpus("file missing", "corpora/file-missing", "plain/list.c.o.bc: no such file", REMAKE, tools=("evaluate",)),
    corpus("truncated", "corpora/truncated", "area.cpp.o.bc", "truncated", REMAKE),
    corpus("of a newer LLVM, as recorded", "corpora/newer-recorded", "LLVM 22.1.0", "use a clang >= 22"),
    corpus("of a newer LLVM, not recorded", "corpora/newer", "LLVM 22", "use a clang >= 22"),
    Mistake(
        "no build",
        ("extract_ir",),
        {"input": "no/such/compile_commands.json"},
        ("no/such/compile_commands.json: cannot be read", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
    ),
    Mistake("build is not JSON", ("extract_ir",), {"input": "file"}, ("file: expected JSON",)),
    Mistake(
        "build without bitcode",
        ("extract_ir",),
        {"input": "build/plain.json"},
        ("build/plain.o", "no section .llvmbc", "compile with -Xclang -fembed-bitcode=all"),
    ),
    Mistake(
        "no objects",
        ("verify_corpus",),
        {"original_dir": "no/such/build"},
        ("--original_dir=no/such/build: no such folder", "give that of the build's objects"),
    ),
    Mistake("sample of none", ("verify_corpus",), {"sample": "0"}, ("--sample", "a positive integer")),
    Mistake(
        "options of no use",
        ("make_corpus",),
        {"default_args": "-Oz"},
        ("--default_args=-Oz: ", "start with '-cc1'", "such as '-cc1 -Oz'"),
    ),
    Mistake(
        "options that load code",
        ("make_corpus",),
        {"default_args": "-cc1 -load x.so"},
        ("--default_args=-cc1 -load x.so: ", "'-load' is not an option that a corpus may use"),
    ),
    Mistake(
        "no bitcode",
        ("make_corpus",),
        {"input_dir": "build"},
        ("build: none of 0 files *.bc is a module", "give another --input_dir"),
    ),
    Mistake(
        "no such folder",
        ("make_corpus",),
        {"input_dir": "no/such/folder"},
        ("no/such/folder: cannot be read", "--input_dir"),
    ),
    Mistake(
        "no such folder",
        ("combine_training_corpus",),
        {"root_dir": "no/such/folder"},
        ("no/such/folder: cannot be read", "give the folder whose sub-folders are corpora"),
    ),
    Mistake(
        "no corpora",
        ("combine_training_corpus",),
        {"root_dir": "policy"},
        ("policy: none of 0 sub-folders is a corpus", "give the folder that holds the corpora"),
    ),
    Mistake(
        "corpora that differ",
        ("combine_training_corpus",),
        {"root_dir": "together-not"},
        ("'one' and 'two' differ in 'global_command_override'", "combine only those that agree"),
    ),
    Mistake(
        "no such task", ("corpus_stats",), {"decisions": "true", "compile_task": "knitting"}, ("knitting", "inlining")
    ),
    Mistake("no parameter file", ("extract_ir",), {"input": "gone", "input_type": "params"}, ("gone: cannot be read",)),
    Mistake(
        "no tree of objects",
        ("extract_ir",),
        {"input": "file", "input_type": "directory"},
        ("file: expected a folder of objects, found none",),
    ),
    Mistake(
        "no result of a Bazel query",
        ("extract_ir",),
        {"input": "file", "input_type": "bazel_aquery"},
        ("file: expected JSON", "bazel aquery --output=jsonproto"),
    ),
    Mistake(
        "no link with ThinLTO",
        ("extract_ir",),
        {"input": "build", "input_type": "directory", "thinlto_build": "local"},
        ("left no file that ends in .3.import.bc", "-Wl,--save-temps=import -Wl,--thinlto-emit-index-files"),
    ),
    Mistake(
        "ThinLTO in the linker, of a database",
        ("extract_ir",),
        {"thinlto_build": "local"},
        ("--input_type=json: says nothing about a link", "give params or directory"),
    ),
    Mistake("no such set", ("fetch_corpus",), {"set": "enormous"}, ("'enormous'", "smoke")),
    Mistake(
        "output folder holds something else",
        ("extract_ir",),
        {"output_dir": "corpus"},
        ("corpus: is not empty; give another --output_dir, or --overwrite",),
    ),
    Mistake(
        "vocabulary missing",
        ("train_locally",),
        {"vocab_path": "no/such/vocabulary"},
        ("no/such/vocabulary: expected a vocabulary", "generate_vocab.py"),
    ),
    Mistake(
        "vocabulary lacks a feature",
        ("train_bc", "train_locally"),
        {"vocab_path": "vocabulary-lacking"},
        ("vocabulary-lacking: the vocabulary lacks the features callsite_height", "generate_vocab.py"),
    ),
    Mistake(
        "vocabulary is no numbers",
        ("train_locally",),
        {"vocab_path": "vocabulary-damaged"},
        ("callsite_height.buckets:1: expected a number, found b'tall'", "generate_vocab.py"),
    ),
    Mistake(
        "policy missing",
        ("evaluate", "export_policy"),
        {"policy_path": "no/such/policy"},
        ("no/such/policy: expected a policy", "train one first"),
    ),
    Mistake("policy missing", ("deploy",), {"policy": "no/such/policy"}, ("no/such/policy: expected a policy",)),
    Mistake("policy damaged", ("deploy",), {"policy": "policy-damaged"}, ("policy-damaged/network.npz: damaged",)),
    Mistake(
        "policy for other features",
        ("deploy",),
        {"policy": "policy-other"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake("no such level", ("deploy",), {"levels": "Oz,fast"}, ("--levels: expected some of O0", "found fast")),
    Mistake("output is a file", ("deploy",), {"output": "file"}, ("file: expected the name of a folder", "another")),
    Mistake(
        "policy to start from missing",
        ("train_locally",),
        {"warmstart_policy_dir": "no/such/policy"},
        ("no/such/policy: expected a policy", "train one first"),
    ),
    Mistake(
        "policy damaged",
        ("evaluate", "export_policy"),
        {"policy_path": "policy-damaged"},
        ("policy-damaged/network.npz: damaged",),
    ),
    Mistake(
        "policy not its model card's",
        ("evaluate", "export_policy"),
        {"policy_path": "policy-replaced"},
        ("policy-replaced: its weights are not those of its model card", "export the policy again"),
    ),
    Mistake(
        "no such format",
        ("export_policy",),
        {"format": "native,onnx"},
        ("--format: expected some of native, cpp, release_model, tflite, aot", "found 'onnx'"),
    ),
    Mistake(
        "evaluation missing",
        ("export_policy",),
        {"evaluation": "no/such/evaluation"},
        ("no/such/evaluation/summary.json: No such file", "--evaluation"),
    ),
    Mistake(
        "policy for other features",
        ("evaluate",),
        {"policy_path": "policy-other"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake(
        "compared policy for other features",
        ("generate_default_trace",),
        {"policy_path": "policy-other", "output_performance_path": "out/performance.csv"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake(
        "policy to start from for other features",
        ("train_locally",),
        {"warmstart_policy_dir": "policy-other"},
        ("policy-other: ", "number_of_moons", "use what was made for the same compiler"),
    ),
    Mistake(
        "unknown gin parameter",
        ("generate_default_trace", "train_bc", "train_locally"),
        {"gin_bindings": "network.colour = 'red'"},
        ("--gin_bindings=network.colour = 'red'", "colour", "expected name.parameter=value"),
    ),
    Mistake(
        "unknown gin parameter in a file",
        ("train_bc", "train_locally"),
        {"gin_files": "unknown.gin"},
        ("--gin_files=unknown.gin", "colour", "mend the file"),
    ),
    Mistake(
        "gin file missing",
        ("generate_default_trace", "train_bc", "train_locally"),
        {"gin_files": "no/such.gin"},
        ("--gin_files=no/such.gin: no such file",),
    ),
    Mistake(
        "gin value of another type",
        ("train_bc", "train_locally"),
        {"gin_bindings": "train_eval.seed = 'red'"},
        ("train_eval.seed", "expected int", "'red'"),
    ),
    Mistake(
        "gin value out of range",
        ("train_locally",),
        {"gin_bindings": "train_eval.num_modules = 0"},
        ("train_eval: num_modules: expected at least 1, found 0",),
    ),
    *(
        Mistake(
            "trace missing", (tool,), {flag: "no/such/trace"}, ("no/such/trace: no such", "generate_default_trace.py")
        )
        for tool, flag in {"generate_vocab": "input", "train_bc": "data_path"}.items()
    ),
    Mistake(
        "output below a file", ("verify_corpus",), {"output_path": "file/x.json"}, ("file/x.json", "cannot be written")
    ),
    *(
        Mistake(f"output folder {name}", (tool,), {flag: path}, (f"{path}", "cannot be written", "another"))
        for tool, flag in OUTPUT_FLAG.items()
        for name, path in {"below a file": "file/out", "on a file system that takes none": "/proc/out"}.items()
    ),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that is needed, good and bad; a mistake must leave it as it is."""
    place = tmp_path_factory.mktemp("place")
    _make_compilers(place)
    _make_corpora(place)
    _make_folders_of_corpora(place)
    _make_builds(place / "build")
    save_vocabulary(place / "vocabulary", {name: np.arange(-5.0, 60.0) for name in FEATURES})
    shutil.copytree(place / "vocabulary", place / "vocabulary-lacking")
    (place / "vocabulary-lacking" / "callsite_height.buckets").unlink()
    shutil.copytree(place / "vocabulary", place / "vocabulary-damaged")
    (place / "vocabulary-damaged" / "callsite_height.buckets").write_text("tall\n")
    _save_policy(place / "policy", "callsite_cost")
    _save_policy(place / "policy-other", "number_of_moons")
    _save_policy(place / "policy-replaced", "callsite_cost")
    NetworkWeights.load(place / "policy-other").card().save(place / "policy-replaced")
    _save_policy(place / "policy-damaged", "callsite_cost")
    (place / "policy-damaged" / "network.npz").write_bytes((place / "policy" / "network.npz").read_bytes()[:200])
    (place / "file").write_text("in the way\n")
    (place / "unknown.gin").write_text("network.colour = 'red'\n")
    _make_trace(place / "trace")
    return place


def _make_compilers(place: Path) -> None:
    for name, version in {"old": "Debian clang version 14.0.6", "other": "gcc (Debian 12.2.0) 12.2.0"}.items():
        (place / f"clang-{name}").write_text(f"#!/bin/sh\necho '{version}'\n")
        (place / f"clang-{name}").chmod(0o755)
    (place / "clang-not-executable").write_text("#!/bin/sh\n")


def _make_corpora(place: Path) -> None:
    (place / "corpus").mkdir()
    make_small_corpus(place / "corpus", CLANG)
    descriptions = {
        "not-json": "modules: none",
        "no-modules": '{"has_thinlto": false}',
        "empty": '{"modules": [], "has_thinlto": false}',
        "parent": '{"modules": ["../../x"], "has_thinlto": false}',
        "absolute": '{"modules": ["/etc/passwd"], "has_thinlto": false}',
        "not-utf8": "",
        "huge": "",
    }
    for name, description in descriptions.items():
        (place / "corpora" / name).mkdir(parents=True)
        (place / "corpora" / name / "corpus_description.json").write_text(description)
    (place / "corpora/not-utf8/corpus_description.json").write_bytes(
        b'{"modules": ["caf\xe9.o"], "has_thinlto": false}'
    )
    with (place / "corpora/huge/corpus_description.json").open("wb") as file:
        file.truncate(4 << 30)
    for name in ("file-missing", "truncated", "link"):
        shutil.copytree(place / "corpus", place / "corpora" / name)
    (place / "corpora" / "file-missing" / "plain" / "list.c.o.bc").unlink()
    (place / "corpora/link/plain/data.c.o.cmd").unlink()
    (place / "corpora/link/plain/data.c.o.cmd").symlink_to("../../../corpus/plain/data.c.o.cmd")
    truncated = place / "corpora" / "truncated" / "shapes" / "area.cpp.o.bc"
    truncated.write_bytes(truncated.read_bytes()[:400])
    (place / "corpora" / "newer").mkdir()
    make_small_corpus(place / "corpora" / "newer", NEWER_CLANG)
    shutil.copytree(place / "corpora" / "newer", place / "corpora" / "newer-recorded")
    description_path = place / "corpora" / "newer-recorded" / "corpus_description.json"
    description = json.loads(description_path.read_text()) | {"compiler": {"version": [22, 1, 0]}}
    description_path.write_text(json.dumps(description))


def _make_folders_of_corpora(place: Path) -> None:
    for folder in ("together", "together-not"):
        for name in ("one", "two"):
            shutil.copytree(place / "corpus", place / folder / name)
    description_path = place / "together-not" / "two" / "corpus_description.json"
    description = json.loads(description_path.read_text()) | {"global_command_override": ["-cc1", "-O2"]}
    description_path.write_text(json.dumps(description))


def _make_builds(build: Path) -> None:
    """Compilation databases of a build with embedded bitcode and of one without."""
    build.mkdir()
    (build / "data.c").write_text(SOURCES["plain/data.c"])
    for name, options in {"compile_commands": ["-Xclang", "-fembed-bitcode=all"], "plain": []}.items():
        arguments = [CLANG, "-Oz", *options, "-c", "data.c", "-o", f"{name}.o"]
        subprocess.run(arguments, cwd=build, check=True)
        entry = {"directory": str(build), "file": "data.c", "arguments": arguments}
        (build / f"{name}.json").write_text(json.dumps([entry]))


def _save_policy(path: Path, feature: str) -> None:
    kernel = np.array([[0, -1], [0, 0], [0, 0]], np.float32)
    NetworkWeights((feature,), (np.arange(9.0),), (kernel,), (np.zeros(2, np.float32),)).save(path)


def _make_trace(path: Path) -> None:
    """A trace as far as its description, which is all that anyone reads who finds a mistake elsewhere."""
    path.write_bytes(b"")
    specs = [{"name": name, "port": 0, "type": "int64_t", "shape": []} for name in (*FEATURES, "inlining_decision")]
    description = {
        "format": 1,
        "problem": "inlining",
        "features": specs[:-1],
        "advice": specs[-1],
        "num_contexts": 0,
        "num_decisions": 0,
        "trace_bytes": 0,
    }
    path.with_name(f"{path.name}.meta.json").write_text(json.dumps(description))


def run(place: Path, temporary: Path, tool: str, flags: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(ROOT / SCRIPTS[tool]), *(f"--{name}={value}" for name, value in flags.items())],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def files(folder: Path) -> dict[str, int]:
    """Everything in a folder, with the time when it was last changed."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in (folder, *sorted(folder.rglob("*")))}


CASES = [pytest.param(tool, mistake, id=f"{tool}: {mistake.name}") for mistake in MISTAKES for tool in mistake.tools]


@pytest.mark.parametrize(("tool", "mistake"), CASES)
def test_a_mistake_is_one_line_and_leaves_nothing(tool: str, mistake: Mistake, place: Path, tmp_path: Path) -> None:
    before = files(place)
    result = run(place, tmp_path, tool, {**GOOD[tool], **mistake.flags})
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    assert result.stderr.count("error: ") == 1
    for word in mistake.words:
        assert word in message
    assert files(place) == before
    assert list(tmp_path.iterdir()) == []


def test_it_is_the_mistake_that_fails(place: Path, tmp_path: Path) -> None:
    """The flags that are replaced by mistakes are good ones: with them, the quick tools do their work."""
    for tool in ("doctor", "extract_ir", "evaluate", "combine_training_corpus", "corpus_stats"):
        result = run(place, tmp_path, tool, GOOD[tool])
        assert result.returncode == 0, result.stderr
    assert (place / "out" / "corpus" / "corpus_description.json").is_file()
    assert (place / "out" / "results" / "report.html").is_file()
    (place / "together" / "corpus_description.json").unlink()
    shutil.rmtree(place / "out")
