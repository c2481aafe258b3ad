"""A small source package, built by two compilers; `python -m benchmarks.distribution` takes Debian's."""

import shutil
from pathlib import Path

from benchmarks.debian_packages import Record, build, count_passed, sizes
from compiler_opt.llvm.toolchain import Toolchain

_RULES = """#!/usr/bin/make -f
clean build:
binary:
\tmkdir -p debian/sum/usr/bin debian/sum/DEBIAN
\tgcc -O3 sum.c -o debian/sum/usr/bin/sum
\tdebian/sum/usr/bin/sum
\techo '# PASS:  2'
\tcp debian/control debian/sum/usr/bin/script && chmod +x debian/sum/usr/bin/script
\ttouch debian/sum/DEBIAN/control
"""
_CONTROL = """Source: sum
Maintainer: Nobody <nobody@example.org>
Rules-Requires-Root: no

Package: sum
Architecture: any
Description: adds
"""
_CHANGELOG = """sum (1) unstable; urgency=low

  * First.

 -- Nobody <nobody@example.org>  Sat, 28 Nov 2026 00:00:00 +0000
"""
_SUM = """int main(int count, char **words) {
  int sum = 0;
  for (int i = 0; i < 100 * count; ++i) sum += words[0][i % 2] * i;
  return sum == 1;
}
"""


def _make_package(folder: Path, source: str) -> None:
    package = folder / "source" / "sum" / "sum-1"
    shutil.rmtree(package, ignore_errors=True)
    (package / "debian" / "source").mkdir(parents=True)
    for name, text in {"rules": _RULES, "control": _CONTROL, "changelog": _CHANGELOG}.items():
        (package / "debian" / name).write_text(text)
    (package / "debian" / "rules").chmod(0o755)
    (package / "debian" / "source" / "format").write_text("3.0 (native)\n")
    (package / "sum.c").write_text(source)


def test_a_package_is_built_at_the_level_by_the_compiler(toolchain: Toolchain, tmp_path: Path) -> None:
    compilers = [toolchain.clang, toolchain.tool("clang++")]
    _make_package(tmp_path, _SUM)
    small, large = (build("sum", level, "plain", compilers, tmp_path, 1) for level in ("Oz", "O3"))
    assert (small.failure, small.tests, list(small.files)) == ("", 2, ["sum/usr/bin/sum"])
    assert small.cpu_s > 0 and sizes(small).code < sizes(large).code < sizes(large).total
    assert not (tmp_path / "build").exists()
    _make_package(tmp_path, _SUM.replace("sum == 1", "3 + (sum == 1)"))
    failed = build("sum", "Oz", "mlgo", compilers, tmp_path, 1)
    assert "exit status 2" in failed.failure and failed.failure.endswith("; see sum-Oz-mlgo.log")
    assert "Error 3" in (tmp_path / "logs" / "sum-Oz-mlgo.log").read_text()


def test_tests_are_counted_as_their_runners_report_them() -> None:
    log = "\n".join(
        [
            "98% tests passed, 1 tests failed out of 57",
            "# TOTAL: 4\n# PASS:  3",
            "Ok:                 12",
            "[  PASSED  ] 1 test.",
            "said: # PASS: 100",
        ]
    )
    assert count_passed(log) == 56 + 3 + 12 + 1
    assert sizes(Record("p", "Oz", "plain", files={"a": [1, 2, 3, 4], "b": [1, 1, 1, 1]})).total == 14
