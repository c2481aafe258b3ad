"""Fuzzes the C++ parsers of `compiler_opt/native` with libFuzzer, AddressSanitizer and UBSan (`fuzzers.cpp`)."""

import dataclasses
import re
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.spaces.native import include_directory

SOURCE = Path(__file__).with_name("fuzzers.cpp")
TARGETS = ("command_line", "configuration", "decision_file", "elf_file", "policy_network")
CORPORA = Path(__file__).with_name("corpora")
"""For each target, a zip file of the inputs that together reach all code that any input has reached."""

_OPTIONS = """
-std=c++17 -Wall -Wextra -pedantic -Werror -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
""".split()
_MAX_INPUT_BYTES = 4096
_SECONDS_PER_INPUT = 10
_BUILD_TIMEOUT_S = 600.0
_DONE = re.compile(r"^#(\d+)\tDONE +cov: (\d+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Fuzzed:
    """One target's run.

    Attributes:
      target: its name.
      inputs: how many inputs it was given.
      coverage: edges of the program that were reached.
      cpu_s: CPU seconds.
      finding: the sanitizer's or libFuzzer's message, and the file with the input; empty if there was none.
    """

    target: str
    inputs: int
    coverage: int
    cpu_s: float
    finding: str = ""


def build(clang: Path, output: Path, *, optimisation: str = "-O1") -> Path:
    """Builds the program with all targets.

    Raises:
      ToolchainError: this clang cannot build it; it needs LLVM's compiler-rt.
    """
    folders = [f"-I{include_directory()}", f"-I{include_directory() / 'driver'}"]
    command = [str(clang), "--driver-mode=g++", *_OPTIONS, optimisation, *folders, str(SOURCE), "-o", str(output)]
    result = processes.run(command, timeout_s=_BUILD_TIMEOUT_S)
    if not result.ok:
        raise ToolchainError(f"{clang}: cannot build {SOURCE.name}: {result.describe()}; install libclang-rt-NN-dev")
    return output


def unpack(target: str, folder: Path) -> int:
    """Writes a target's kept inputs to a folder; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(CORPORA / f"{target}.zip") as archive:
        archive.extractall(folder)
        return len(archive.namelist())


def pack(target: str, inputs: Iterable[bytes]) -> None:
    """Keeps inputs; the same inputs give the same file."""
    CORPORA.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPORA / f"{target}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for index, content in enumerate(sorted(set(inputs))):
            archive.writestr(zipfile.ZipInfo(f"{index:04}"), content, zipfile.ZIP_DEFLATED)


def run(
    program: Path, target: str, corpus: Path, findings: Path, *, inputs: int, seed: int, timeout_s: float
) -> Fuzzed:
    """Gives a target `inputs` inputs, mutated from those in the folder `corpus`, to which it adds what reaches more.

    An input at which it fails is written to the folder `findings`.
    """
    options = [
        f"-runs={inputs}",
        f"-seed={seed}",
        f"-max_len={_MAX_INPUT_BYTES}",
        f"-timeout={_SECONDS_PER_INPUT}",
        f"-artifact_prefix={findings}/{target}-",
    ]
    deadline_s = time.monotonic() + timeout_s
    with (
        scratch_directory() as folder,
        (findings / f"{target}.log").open("w+b") as log,
        processes.start(
            [*_started(program, target, folder), *options, str(corpus)], stderr=log, memory_bytes=None
        ) as child,
    ):
        timed_out = not processes.wait_for_exit(child, deadline_s)
        if timed_out:
            child.kill()
        result = child.wait(timed_out=timed_out)
        log.seek(0)
        printed = log.read().decode("utf-8", "replace")
    done = _DONE.search(printed)
    if result.ok and done is not None:
        return Fuzzed(target, int(done[1]), int(done[2]), result.cpu_s)
    reasons = [line for line in printed.splitlines() if line.startswith(("SUMMARY:", "violated:"))]
    where = [line for line in printed.splitlines() if "Test unit written to" in line]
    return Fuzzed(target, 0, 0, result.cpu_s, "; ".join([*reasons, *where]) or result.describe())


def minimise(program: Path, target: str, corpus: Path, output: Path) -> None:
    """Copies to the empty folder `output` those inputs of `corpus` that are needed to reach the same code."""
    options = ["-merge=1", f"-max_len={_MAX_INPUT_BYTES}", str(output), str(corpus)]
    with scratch_directory() as folder:
        command = [*_started(program, target, folder), *options]
        result = processes.run(command, timeout_s=_BUILD_TIMEOUT_S, memory_bytes=None)
    if not result.ok:
        raise ToolchainError(f"{program}: cannot minimise the inputs of {target}: {result.describe()}")


def _started(program: Path, target: str, folder: Path) -> list[str]:
    return [str(program), f"--target={target}", f"--folder={folder}"]
