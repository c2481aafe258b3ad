"""A small source package, built by two compilers; `python -m benchmarks.distribution` takes Debian's."""

import shutil
from pathlib import Path

import pytest

from benchmarks.debian_packages import (
    COMPILERS,
    Record,
    Source,
    build,
    count_passed,
    llvm_tools,
    most_needed,
    read_sources,
    sizes,
)
from compiler_opt.llvm.toolchain import Toolchain

_RULES = """#!/usr/bin/make -f
clean build:
binary:
\tmkdir -p debian/sum/usr/bin debian/sum/DEBIAN
\tgcc -O3 -c sum.c part.c && ar rc libpart.a part.o && ranlib libpart.a
\tgcc -O3 sum.o libpart.a -o debian/sum/usr/bin/sum
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
_PART = "int part(int number) { return 3 * number; }"
_SUM = """int part(int number);
int main(int count, char **words) {
  int sum = 0;
  for (int i = 0; i < 100 * count; ++i) sum += words[0][i % 2] * part(i);
  return sum == 1;
}
"""


def _make_package(folder: Path, source: str, rules: str = _RULES) -> None:
    package = folder / "source" / "sum" / "sum-1"
    shutil.rmtree(package, ignore_errors=True)
    (package / "debian" / "source").mkdir(parents=True)
    for name, text in {"rules": rules, "control": _CONTROL, "changelog": _CHANGELOG}.items():
        (package / "debian" / name).write_text(text)
    (package / "debian" / "rules").chmod(0o755)
    (package / "debian" / "source" / "format").write_text("3.0 (native)\n")
    (package / "sum.c").write_text(source)
    (package / "part.c").write_text(_PART)


@pytest.mark.ci
def test_a_package_is_built_at_the_level_by_the_compiler(toolchain: Toolchain, tmp_path: Path) -> None:
    tools = dict.fromkeys(COMPILERS, toolchain.clang)
    tools |= llvm_tools(toolchain)
    _make_package(tmp_path, _SUM)
    small, large = (build("sum", level, "plain", tools, tmp_path, 1) for level in ("Oz", "O3"))
    assert (small.failure, small.tests, list(small.files)) == ("", 2, ["sum/usr/bin/sum"])
    assert small.cpu_s > 0 and sizes(small).code < sizes(large).code < sizes(large).total
    assert not (tmp_path / "build").exists()
    linked = build("sum", "Oz-flto=thin", "plain", tools, tmp_path, 1)
    assert (linked.failure, linked.level) == ("", "Oz-flto=thin") and sizes(linked).code < sizes(small).code
    _make_package(tmp_path, _SUM.replace("sum == 1", "3 + (sum == 1)"))
    failed = build("sum", "Oz", "mlgo", tools, tmp_path, 1)
    assert "exit status 2" in failed.failure and failed.failure.endswith("; see sum-Oz-mlgo.log")
    assert "Error 3" in (tmp_path / "logs" / "sum-Oz-mlgo.log").read_text()
    _make_package(tmp_path, _SUM, _RULES.replace("\tgcc", "\t/usr/bin/gcc"))
    others = build("sum", "Oz", "plain", tools, tmp_path, 1)
    assert others.failure == "its build runs no compiler that it finds on PATH; see sum-Oz-plain.log" and others.files


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


_AVAILABLE = """Package: libsum1
Source: sum (1.2)
Architecture: amd64
Installed-Size: 300
Tag: devel::library, implemented-in::c,
 role::shared-lib

Package: sum-doc
Source: sum
Architecture: all
Installed-Size: 5000

Package: sum-tools
Architecture: amd64
Source: sum
Depends: libsum1 (>= 1),
 libmany
Installed-Size: 100
Tag: implemented-in::c

Package: many
Depends: libsum1, libmany:any (>= 2) | libtiny
Architecture: amd64
Installed-Size: 900
Tag: implemented-in::c++

Package: libmany
Depends: libc6
Architecture: amd64
Installed-Size: 9000
Tag: implemented-in::c

Package: libtiny
Depends: many
Architecture: amd64
Installed-Size: 10
Tag: implemented-in::c

Package: scripts
Depends: libsum1, many
Architecture: amd64
Installed-Size: 500
Tag: implemented-in::c, implemented-in::python

Package: other
Architecture: amd64
Installed-Size: 500
Tag: implemented-in::c
"""


def test_the_packages_that_most_others_need() -> None:
    sources = read_sources(_AVAILABLE)
    assert sources["sum"] == Source(frozenset({"c"}), 400, 2)
    assert sources["libmany"] == Source(frozenset({"c"}), 9000, 2)
    assert sources["libtiny"].needed_by == 1 and sources["scripts"].languages == {"c", "python"}
    assert most_needed(sources, 1) == ["sum", "many"]
    assert most_needed(sources, 9) == ["sum", "other", "many"]
    assert most_needed(sources, 1, excluded=["sum"]) == ["other", "many"]
