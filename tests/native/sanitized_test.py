"""Sanitizers in a plugin report its errors from within a clang that has none."""

import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt.llvm.plugin import PluginKind, load_option
from tests.native import sanitized
from tests.probed import probed

_SOURCE = """
#include <cstdlib>
#include <cstring>
struct Info { unsigned version; const char *name, *release; void (*callbacks)(void *); void (*other)(); };
static volatile int number = 2147483647;
static int disturbed(volatile char *memory) { return ERROR; }
extern "C" __attribute__((visibility("default"))) Info llvmGetPassPluginInfo() {
  volatile char *memory = static_cast<volatile char *>(std::malloc(8));
  memory[7] = 0;
  number = disturbed(memory) & 1;
  return {2, "broken", "1", [](void *) {}, nullptr};
}
"""


@pytest.mark.parametrize(
    ("error", "reports", "crashes"),
    [
        ("(std::free(const_cast<char *>(memory)), memory[0])", True, False),
        ("number + 1", False, True),
        ("memory[7]", False, False),
    ],
)
def test_errors_of_a_plugin_are_reported(error: str, reports: bool, crashes: bool, tmp_path: Path) -> None:
    toolchain = probed("clang-22")
    source = tmp_path / "broken.cpp"
    source.write_text(_SOURCE.replace("ERROR", error))
    kind = PluginKind("broken", (source,), lambda *_: None, oldest=19)
    plugin = sanitized.build(kind, "address", toolchain, tmp_path)
    result = subprocess.run(
        [str(toolchain.clang), load_option(plugin.library), "-O1", "-c", "-x", "c", os.devnull, "-o", os.devnull],
        env={**os.environ, **plugin.variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (result.returncode != 0) == crashes, result.stderr
    findings = plugin.findings()
    assert len(findings) == reports
    assert all("heap-use-after-free" in finding for finding in findings)
