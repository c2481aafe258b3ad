"""Labels blocks with cycles by llvm-mca, thousands in one process.

A block is disassembled by llvm-mc (relocations count as zero), and its text becomes a region of llvm-mca's input. The
label is the simulated time of `ITERATIONS` runs of the block in a row, divided by them. A call counts as an instruction
that is done at once: what the callee costs is no property of the block. One line that llvm-mca does not read makes it
refuse its whole input, so a refused input is halved until the block is found.
"""

import dataclasses
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain

ITERATIONS = 20
"""Fewer are biased by the first ones, in which the simulated pipeline fills."""

TRIPLE = "x86_64-unknown-linux-gnu"
BATCH_BLOCKS = 4000
_FLAGS = (
    f"--iterations={ITERATIONS}",
    "--call-latency=1",
    "--json",
    "--resource-pressure=false",
    "--instruction-info=false",
    "-skip-unsupported-instructions=any",
)
_MAX_STDOUT_BYTES = 1 << 30
_TIMEOUT_S = 300.0
_NOP = b"\x90"
# A marker between blocks: ud1l NUMBER(%r13,%r14,8), %r15d, an undefined instruction with operands that nobody writes.
_MARKER_HEAD = b"\x47\x0f\xb9\xbc\xf5"
_MARKER = re.compile(r"^\s*ud1l\s+(\d*)\(%r13,%r14,8\), %r15d\s*$")
_REFUSED = re.compile(rb":(\d+):\d+: warning")


class _Summary(msgspec.Struct, rename="pascal"):
    iterations: int
    total_cycles: int


class _Region(msgspec.Struct, rename="pascal"):
    name: str
    summary_view: _Summary


class _Output(msgspec.Struct, rename="pascal"):
    code_regions: list[_Region]


@dataclasses.dataclass(frozen=True)
class Labeller:
    """llvm-mca for one processor.

    Attributes:
      toolchain: whose llvm-mca and llvm-mc are used.
      cpu: the processor, as in `llvm-mca -mcpu=help`.
    """

    toolchain: Toolchain
    cpu: str = "skylake"

    @property
    def source(self) -> str:
        """The name of its labels."""
        return f"llvm-mca {'.'.join(map(str, self.toolchain.version))} {self.cpu}"

    def check(self) -> None:
        """Tries it on one instruction.

        Raises:
          ConfigError: the processor is `native`, which differs between machines.
          ToolchainError: a tool is missing, or does not know the processor.
        """
        if self.cpu == "native":
            raise ConfigError("--cpu=native: labels would depend on this machine; name a processor, such as skylake")
        with scratch_directory() as scratch:
            result = self._run([disassemble([_NOP], self.toolchain, scratch)[0] or ""], scratch)
        if result.returncode or b"not a recognized processor" in result.stderr_tail.encode():
            raise ToolchainError(f"llvm-mca cannot simulate {self.cpu}: {result.describe()}; give another --cpu")

    def label(self, codes: Sequence[bytes]) -> list[float | None]:
        """Cycles of each block, `[N]`; None where llvm-mc or llvm-mca refuses it."""
        with scratch_directory() as scratch:
            texts = disassemble(codes, self.toolchain, scratch)
            numbers = [number for number, text in enumerate(texts) if text is not None]
            cycles = self._cycles([texts[number] or "" for number in numbers], scratch)
        labels: list[float | None] = [None] * len(codes)
        for number, value in zip(numbers, cycles, strict=True):
            labels[number] = value
        return labels

    def _cycles(self, texts: Sequence[str], scratch: Path) -> list[float | None]:
        if not texts:
            return []
        result = self._run(texts, scratch)
        if result.ok:
            try:
                output = msgspec.json.decode(result.stdout, type=_Output)
            except msgspec.DecodeError as error:
                raise ToolchainError(f"{result.command[0]}: prints JSON that is not as expected: {error}") from None
            views = {region.name: region.summary_view for region in output.code_regions}
            found = [views.get(f"block{number}") for number in range(len(texts))]
            return [view.total_cycles / view.iterations if view and view.total_cycles else None for view in found]
        if len(texts) == 1:
            return [None]
        middle = len(texts) // 2
        return self._cycles(texts[:middle], scratch) + self._cycles(texts[middle:], scratch)

    def _run(self, texts: Sequence[str], scratch: Path) -> processes.ProcessResult:
        path = scratch / "blocks.s"
        path.write_text(
            "".join(
                f"# LLVM-MCA-BEGIN block{number}\n{text}# LLVM-MCA-END block{number}\n"
                for number, text in enumerate(texts)
            )
        )
        command = [str(self.toolchain.tool("llvm-mca")), f"-mtriple={TRIPLE}", f"-mcpu={self.cpu}", *_FLAGS, str(path)]
        sandbox = Sandbox.for_folder(None)
        return processes.run(command, timeout_s=_TIMEOUT_S, max_stdout_bytes=_MAX_STDOUT_BYTES, sandbox=sandbox)


def disassemble(codes: Sequence[bytes], toolchain: Toolchain, scratch: Path) -> list[str | None]:
    """Assembly text of each block by llvm-mc, `[N]`, a line for each instruction; None if some bytes are none.

    Raises:
      ToolchainError: llvm-mc is missing or fails.
    """
    path = scratch / "blocks.hex"
    lines = []
    for number, code in enumerate(codes):
        lines += [_hex(code), _hex(_MARKER_HEAD + number.to_bytes(4, "little"))]
    path.write_text("\n".join(lines) + "\n")
    command = [str(toolchain.tool("llvm-mc")), "--disassemble", f"--triple={TRIPLE}", str(path)]
    text_path = scratch / "blocks.txt"
    sandbox = Sandbox.for_folder(None)
    with (
        text_path.open("w+b") as output,
        os.fdopen(os.memfd_create("warnings", os.MFD_CLOEXEC), "w+b") as warnings,
        processes.start(command, stdout=output, stderr=warnings, max_stderr_bytes=None, sandbox=sandbox) as child,
    ):
        in_time = processes.wait_for_exit(child, time.monotonic() + _TIMEOUT_S)
        result = child.wait(timed_out=not in_time)
        warnings.seek(0)
        refused = {int(match[1]) // 2 for match in _REFUSED.finditer(warnings.read())}
    # Its status is 1 if it refuses any bytes.
    if not result.ok and not (refused and result.returncode == 1):
        raise ToolchainError(f"llvm-mc cannot disassemble: {result.describe()}")
    texts: list[str | None] = []
    block: list[str] = []
    with text_path.open(encoding="utf-8") as file:
        for line in file:
            marker = _MARKER.match(line)
            if marker is None:
                block.append(line)
            else:
                number = int(marker[1] or 0)
                if number != len(texts):
                    raise ToolchainError(f"llvm-mc: expected the text of block {len(texts)}, found that of {number}")
                texts.append("".join(block) if block and number not in refused else None)
                block = []
    if len(texts) != len(codes):
        raise ToolchainError(f"llvm-mc: expected the text of {len(codes)} blocks, found that of {len(texts)}")
    return texts


def label_all(
    codes: Sequence[bytes], labeller: Labeller, progress: Callable[[int], object] = lambda _: None
) -> list[float | None]:
    """`Labeller.label` of any number of blocks, in batches; `progress` is called with the blocks of each."""
    labels: list[float | None] = []
    for start in range(0, len(codes), BATCH_BLOCKS):
        batch = codes[start : start + BATCH_BLOCKS]
        labels += labeller.label(batch)
        progress(len(batch))
    return labels


def _hex(code: bytes) -> str:
    return "[" + ",".join(map(hex, code)) + "]"
