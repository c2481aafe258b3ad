"""Good and bad input of the entry points."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np

from compiler_opt.array_files import save_arrays
from compiler_opt.cost_models.throughput.blocks import Block, save_blocks
from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.files import write_checked_json
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from tests.measure.running import PROGRAM
from tests.small_corpus import SOURCES, make_small_corpus
from tests.tools.bad_input.mistake import CLANG, NEWER_CLANG


def make_place(place: Path) -> None:
    """Fills a folder with good and bad input."""
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
    (place / "policy-saved-model").mkdir()
    for name in ("saved_model.pb", "model.tflite"):
        (place / "policy-saved-model" / name).touch()
    _save_policy(place / "policy-replaced", "callsite_cost")
    NetworkWeights.load(place / "policy-other").card().save(place / "policy-replaced")
    _save_policy(place / "policy-damaged", "callsite_cost")
    (place / "policy-damaged" / "network.npz").write_bytes((place / "policy" / "network.npz").read_bytes()[:200])
    for name in ("plain", "shapes"):
        (place / "found" / name).mkdir(parents=True)
        (place / "found" / name / "search_state.json").write_text("{}")
    (place / "file").write_text("in the way\n")
    _make_options(place / "options")
    (place / "unknown.gin").write_text("network.colour = 'red'\n")
    _make_trace(place / "trace")
    _make_blocks(place)
    _make_programs(place)


def _make_blocks(place: Path) -> None:
    codes = (b"\x90", b"\x55\xc3", b"\x90\x90")
    blocks = [Block(code, "p/a.o", "f", 0, 1.0, labels={"llvm-mca 22.1.0 skylake": 1.0}) for code in codes]
    for name in ("train", "validation"):
        save_blocks(place / "blocks" / f"{name}.npz", blocks)
    (place / "blocks-truncated").mkdir()
    (place / "blocks-truncated/train.npz").write_bytes((place / "blocks/train.npz").read_bytes()[:500])
    save_arrays(place / "blocks-other" / "train.npz", {"x": np.zeros(1)})


def _make_programs(place: Path) -> None:
    """A program that can be profiled, one without an address map, and samples of neither."""
    (place / "programs").mkdir()
    (place / "programs" / "bench.c").write_text(PROGRAM)
    for name, flags in (("bench", ["-fbasic-block-address-map"]), ("plain", [])):
        command = [CLANG, "-O1", *flags, "-Wl,--build-id", "bench.c", "-o", name]
        subprocess.run(command, cwd=place / "programs", check=True)
    write_checked_json(place / "model-other" / "model.json", {"format": 1, "kind": "trees"})
    (place / "samples-other.txt").write_text(
        " 7 PERF_RECORD_MMAP2 7/7: [0x10000(0x10000) @ 0 <0123456789abcdef>]: r-xp /elsewhere/bench\n 7 50000 10010\n"
    )


def _make_options(folder: Path) -> None:
    """Files of options of LLVM's passes."""
    crash, writes, prints = "-use-constant-fp-for-fixed-length-splat", "-polly-dot", "-print-before-all"
    sets = {
        "not-taken": [crash, writes, prints, "-no-such-option=1", "-no-such-option=2", "-unroll-threshold=many"],
        "path": ["-info-output-file=/tmp/x"],
    }
    folder.mkdir()
    for name, options in sets.items():
        (folder / f"{name}.json").write_text(json.dumps({"format": 1, "levels": {"Oz": options}}))
    with (folder / "huge.json").open("wb") as file:
        file.truncate(100 << 20)


def _make_compilers(place: Path) -> None:
    for name, version in {"old": "Debian clang version 14.0.6", "other": "gcc (Debian 12.2.0) 12.2.0"}.items():
        (place / f"clang-{name}").write_text(f"#!/bin/sh\necho '{version}'\n")
        (place / f"clang-{name}").chmod(0o755)
    (place / "clang-not-executable").write_text("#!/bin/sh\n")
    driver = place / "prefix" / "bin" / "mlgo-clang"
    driver.parent.mkdir(parents=True)
    driver.write_text(f"#!/bin/sh\necho 'policy: none'\necho 'clang: {CLANG} (7 bytes of 1.0, build 0)'\n")
    driver.chmod(0o755)


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
    optnone = place / "corpora" / "optnone"
    shutil.copytree(place / "corpus" / "plain", optnone)
    (optnone / "corpus_description.json").write_text('{"modules": ["list.c.o"], "has_thinlto": false}')
    command = [CLANG, "-O0", "-emit-llvm", "-c", "-x", "c", "-", "-o", str(optnone / "list.c.o.bc")]
    subprocess.run(command, input=SOURCES["plain/list.c"].encode(), check=True)
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
    for name in ("data.c", "list.c"):
        (build / name).write_text(SOURCES[f"plain/{name}"])
    for name, options in {"compile_commands": ["-Xclang", "-fembed-bitcode=all"], "plain": []}.items():
        arguments = [CLANG, "-Oz", *options, "-c", "data.c", "-o", f"{name}.o"]
        subprocess.run(arguments, cwd=build, check=True)
        entry = {"directory": str(build), "file": "data.c", "arguments": arguments}
        (build / f"{name}.json").write_text(json.dumps([entry]))
    entries = {
        "clang-cl": [{"file": "data.c", "output": "data.obj", "command": "clang-cl /c data.c /Fodata.obj"}],
        "links": [
            {"file": "data.o", "output": "app", "command": ": && clang data.o -o app && :"},
            {"file": "app", "output": "all", "command": ""},
        ],
        "list": [{"directory": str(build), "file": "list.c", "arguments": [CLANG, "-c", "list.c", "-o", "list.o"]}],
    }
    for name, listed in entries.items():
        (build / f"{name}.json").write_text(json.dumps(listed))


def _save_policy(path: Path, feature: str) -> None:
    kernel = np.array([[0, -1], [0, 0], [0, 0]], np.float32)
    NetworkWeights((feature,), (np.arange(9.0),), (kernel,), (np.zeros(2, np.float32),)).save(path)


def _make_trace(path: Path) -> None:
    """The description of a trace, which is all that is read before a mistake elsewhere is found."""
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
