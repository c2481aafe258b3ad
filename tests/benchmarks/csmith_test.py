"""Three programs of csmith; `python -m benchmarks.csmith` runs thousands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _run(output: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.csmith", f"--output_dir={output}", *options],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(output.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_outputs_are_equal(tmp_path: Path) -> None:
    output = tmp_path / "records"
    done = _run(output, "--programs=2", "--seed=3")
    assert done.returncode == 0, done.stderr
    records = (output / "records.jsonl").read_bytes()
    # What an interrupted run leaves.
    (output / "records.jsonl").write_bytes(records + records[:20])
    done = _run(output, "--programs=3", "--seed=3")
    assert done.returncode == 0, done.stderr
    assert (output / "records.jsonl").read_bytes().startswith(records)
    lines = [json.loads(line) for line in (output / "records.jsonl").read_bytes().splitlines()]
    expected = [(seed, level) for seed in (3, 4, 5) for level in ("Oz", "O2")]
    assert [(line["seed"], line["level"]) for line in lines] == expected
    assert all(line["outcome"] in ("equal", "plain does not end normally") for line in lines)
    assert re.search(r" -Oz: \d objects differ; programs: ", done.stdout)
    other = _run(output, "--programs=3", "--seed=3", "--added=-mllvm -disable-lsr")
    assert other.returncode == 2
    assert other.stderr.endswith("its results are of other conditions (added); give another --output_dir\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_other_output_is_found(tmp_path: Path) -> None:
    """An option of mlgo-clang that makes the program print more."""
    output, header = tmp_path / "records", tmp_path / "more.h"
    header.write_text(
        'int puts(const char *);\n__attribute__((constructor)) static void more(void) { puts("more"); }\n'
    )
    done = _run(output, "--programs=1", "--seed=3", "--levels=Oz", f"--added=-include {header}")
    assert done.returncode == 1
    assert done.stdout.endswith("/3.c: other output at -Oz, clang-22\n")
    assert (output / "3.c").is_file()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_programs_of_another_target_are_emulated(tmp_path: Path) -> None:
    """With the options that ship for it, other than those for x86-64."""
    output, words = tmp_path / "records", ("--programs=1", "--seed=3", "--levels=Oz")
    done = _run(output, *words, "--target_triple=aarch64-linux-gnu", "--emulator=qemu-aarch64")
    assert done.returncode == 0, done.stderr
    assert " -Oz: 1 objects differ; programs: 1 equal\n  with " in done.stdout
    assert json.loads((output / "conditions.json").read_text())["target"] == "aarch64-linux-gnu"
    done = _run(tmp_path / "others", *words, "--target_triple=aarch64-linux-gnu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--target_triple and --emulator together" in done.stderr
    done = _run(tmp_path / "others", *words, "--target_triple=aarch64-linux-gnu", "--emulator=qemu-nothing")
    assert "--emulator=qemu-nothing: no such program" in done.stderr
    done = _run(tmp_path / "others", *words, "--target_triple=sparc64-linux-gnu", "--emulator=qemu-aarch64")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--target_triple=sparc64-linux-gnu: " in done.stderr and "links no program for it" in done.stderr
