"""Cross compilation of sources, which needs the target's headers.

Clang generates code for every target that it was built with, and bitcode needs nothing else. Only the front end reads
the headers of the C and C++ libraries, whose types and macros depend on the target.
"""

import dataclasses
import re
from pathlib import Path

from compiler_opt.corpus.module import explain_failure
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory

_HEADERS = {"c": "stdio.h", "c++": "string"}
"""For each language, a header that includes many others."""

_TIMEOUT_S = 60.0
_TRIPLE = re.compile(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+){1,4}")


@dataclasses.dataclass(frozen=True)
class Target:
    """A triple such as `aarch64-linux-gnu`, and the root folder of its headers; None for the compiler's defaults."""

    triple: str | None = None
    sysroot: Path | None = None

    def __post_init__(self) -> None:
        if self.triple is not None and not _TRIPLE.fullmatch(self.triple):
            raise ConfigError(f"--target_triple={self.triple}: expected words joined by '-', as in aarch64-linux-gnu")
        if self.sysroot is not None and not self.sysroot.is_dir():
            raise ConfigError(f"--sysroot={self.sysroot}: no such folder")

    @property
    def options(self) -> tuple[str, ...]:
        """The options of clang's driver that select the target."""
        target = () if self.triple is None else (f"--target={self.triple}",)
        if self.triple is not None and self.triple.startswith("thumb"):
            target = (*target, "-mthumb")  # For Linux, clang generates code for Arm without it.
        sysroot = () if self.sysroot is None else (f"--sysroot={self.sysroot.absolute()}",)
        return (*target, *sysroot)

    def architecture(self, clang: Path | str) -> str:
        """The architecture in the compiler's normalised triple, e.g. `aarch64`.

        Raises:
          ConfigError: the compiler does not support the target.
          ToolchainError: it cannot be run.
        """
        result = processes.run([str(clang), *self.options, "--print-target-triple"], timeout_s=_TIMEOUT_S)
        triple = result.stdout.decode("utf-8", "replace").strip()
        if not result.ok or not triple:
            raise ConfigError(f"{clang}: expected a target from --print-target-triple: {result.describe()}")
        return triple.split("-")[0]

    def check(self, clang: Path | str) -> None:
        """Checks the target by compiling a line of C and of C++ that include headers.

        Raises:
          ConfigError: the compiler does not support the target, or does not find its headers.
          ToolchainError: it cannot be run.
        """
        with scratch_directory() as scratch:
            for language, header in _HEADERS.items():
                source = scratch / "headers"
                source.write_text(f"#include <{header}>\n")
                command = [str(clang), *self.options, "-x", language, "-c", str(source), "-o", str(scratch / "x.o")]
                result = processes.run(command, timeout_s=_TIMEOUT_S)
                if not result.ok:
                    raise ConfigError(f"--target_triple={self.triple}: {self._explain(language, result)}")

    def _explain(self, language: str, result: processes.ProcessResult) -> str:
        if missing := re.search(r"'([^']+)' file not found", result.stderr_tail):
            triple = re.sub(r"^(arm|thumb)(?!64)[^-]*", "arm", self.triple or "").replace("-unknown-", "-")
            name = "C" if language == "c" else "C++"
            return (
                f"the headers of {name} for it are missing ({missing[1]!r} is not found); install them (on Debian and "
                f"Ubuntu e.g. the package g++-{triple}), or give the root of an installation by --sysroot"
            )
        return explain_failure(result.stderr_tail) or result.describe()


OWN_TARGET = Target()
"""The compiler's default target."""
