"""Plugins built with sanitizers, and what they report inside a compiler or linker without."""

import dataclasses
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from compiler_opt.llvm import plugin
from compiler_opt.llvm.toolchain import Toolchain

SANITIZERS = {"address": ("address", "undefined"), "thread": ("thread",)}
"""Runs of their own, by name: AddressSanitizer and ThreadSanitizer exclude each other."""

_RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
_FLAGS = {
    # Without RTTI, objects of LLVM's classes have no types to check. Undefined behaviour crashes the compiler: beside
    # libasan, libubsan would not write to the file.
    "undefined": ("-fno-sanitize=vptr", "-fsanitize-undefined-trap-on-error"),
}


@dataclasses.dataclass(frozen=True)
class SanitizedPlugin:
    """A plugin with one of `SANITIZERS`. Undefined behaviour ends the program by a signal; the rest is reported.

    Attributes:
      library: the plugin; reports that do not name it are about LLVM's own code, which is not instrumented.
      reports: the sanitizers write to files whose names begin so.
      variables: environment variables of the program that loads it.
    """

    library: Path
    reports: Path
    variables: Mapping[str, str]

    def findings(self) -> list[str]:
        """The reports about the plugin so far."""
        files = sorted(self.reports.parent.glob(f"{self.reports.name}*"))
        return [
            report.strip()
            for file in files
            for report in file.read_text(errors="replace").split("=" * 18)
            if self.library.name in report
        ]


def build(kind: plugin.PluginKind, sanitizers: str, toolchain: Toolchain, folder: Path) -> SanitizedPlugin:
    """Builds a plugin by g++, whose sanitizers need no other package; any failure fails the test."""
    gcc = shutil.which("g++")
    assert gcc is not None, "g++ is not installed; ./run_tests.sh installs what the tests need"
    library, reports = folder / f"{kind.name}-{sanitizers}.so", folder / f"reports-{kind.name}-{sanitizers}"
    names = SANITIZERS[sanitizers]
    flags = [*plugin.FLAGS, *plugin.llvm_definitions(toolchain), "-isystem", str(toolchain.plugin_headers)]
    flags += ["-O1", "-g1", f"-fsanitize={','.join(names)}", *(flag for name in names for flag in _FLAGS.get(name, ()))]
    subprocess.run([gcc, *flags, "-shared", "-Wl,-z,lazy", str(kind.sources[0]), "-o", str(library)], check=True)
    runtimes = [
        subprocess.run([gcc, f"-print-file-name={_RUNTIMES[name]}"], capture_output=True, text=True, check=True).stdout
        for name in names
        if name in _RUNTIMES
    ]
    # A compiler exits without freeing memory. LLVM's allocators mark memory as unusable, also from within headers, but
    # only an instrumented LLVM would also mark it as usable again.
    options = f"log_path={reports}:exitcode=0:detect_leaks=0:allow_user_poisoning=0:stack_trace_format='#%n %F %S %M'"
    variables = {
        "LD_PRELOAD": ":".join(str(Path(runtime.strip()).resolve()) for runtime in runtimes),
        **dict.fromkeys(("ASAN_OPTIONS", "TSAN_OPTIONS"), options),
    }
    return SanitizedPlugin(library, reports, variables)
