"""At which level a compilation is, wherever that comes from: the policy decides at its own levels alone."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN

LARGE = LEAN + FAT.replace("return t +", f"{'t += g(t, k) * g(x, t); ' * 40} return t +")
"""At -O2, too, the policy inlines what the compiler does not."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    (place / "inside").mkdir(parents=True)
    (place / "lean.c").write_text(LARGE)
    (place / "inside" / "inside.c").write_text(LARGE)
    (place / "Oz.cfg").write_text("#-O0\n  # -O0\n-Oz -DA=#\\\n-DB \\\r\n\n@../place/more.cfg\n")
    (place / "more.cfg").write_bytes("-DC\n".encode("utf-16"))
    # A backslash escapes within either quotes; a byte order mark is skipped; UTF-16 is read.
    (place / "quoted.rsp").write_text("-DA='it\\'s' -Oz -DB='\\''")
    (place / "marked.rsp").write_bytes(b"\xef\xbb\xbf-Oz\n")
    (place / "little.rsp").write_bytes("-Oz -DA=é𝄞".encode("utf-16"))
    (place / "big.rsp").write_bytes(b"\xfe\xff" + "-Oz -DA=é𝄞".encode("utf-16-be"))
    return place


OVERRIDE = "CCC_OVERRIDE_OPTIONS"
# (environment, arguments, whether the result is at -Oz)
CASES: Mapping[str, tuple[Mapping[str, str], str, bool]] = {
    "the last word is the environment's": ({OVERRIDE: "# O2"}, "-Oz -c lean.c", False),
    "and is -Oz": ({OVERRIDE: "# Oz"}, "-O2 -c lean.c", True),
    "added": ({OVERRIDE: "# +-Oz"}, "-c lean.c", True),
    "removed": ({OVERRIDE: "# x-Oz"}, "-Oz -c lean.c", False),
    "replaced": ({OVERRIDE: "# s/-O2/-Oz/"}, "-O2 -c lean.c", True),
    "replaced in ours, too": ({OVERRIDE: "# s/no-//"}, "-Oz -c lean.c", False),
    "recorded": ({OVERRIDE: "# +-frecord-command-line"}, "-Oz -c lean.c", False),
    "cc1's": ({}, "-Oz -Xclang -O2 -c lean.c", False),
    "cc1's -Oz": ({}, "-O2 -Xclang -Oz -c lean.c", True),
    "cc1's -Oz, joined": ({}, "-O2 -Xclang=-Oz -c lean.c", True),
    "the preprocessor's": ({}, "-O2 -Xpreprocessor -Oz -c lean.c", True),
    "the preprocessor's, after a comma": ({}, "-Oz -Wp,-DA,-O2 -c lean.c", False),
    "the host's": ({}, "-Oz -Xarch_host -O2 -c lean.c", False),
    "the host's -Oz": ({}, "-Xarch_host -Oz -c lean.c", True),
    "a device's": ({}, "-Oz -Xarch_device -O2 -c lean.c", True),
    "a file's": ({}, "--config=./Oz.cfg -c lean.c", True),
    "not a file's": ({}, "--config=./Oz.cfg -Os -c lean.c", False),
    "beside a quote": ({}, "@quoted.rsp -c lean.c", True),
    "after a mark": ({}, "@marked.rsp -c lean.c", True),
    "of 16 bits": ({}, "@little.rsp -c lean.c", True),
    "of 16 bits, the other way": ({}, "@big.rsp -c lean.c", True),
    "elsewhere": ({}, "-working-directory=WORKING -Oz -c inside.c", True),
    "elsewhere, apart": ({}, "-working-directory WORKING -Oz -c inside.c", True),
}


@pytest.mark.parametrize("name", CASES)
def test_wherever_the_level_comes_from(compiler: Compiler, place: Path, name: str) -> None:
    environment, text, is_at_oz = CASES[name]
    arguments = text.replace("WORKING", str(place / "inside")).split()
    made = place / "inside" / "inside.o" if "WORKING" in text else place / "lean.o"
    contents, said = {}, set()
    for how in (compiler.plain, compiler.with_policy, compiler.run):
        result = how(arguments, place, environment)
        said.add((result.returncode, result.stderr))
        contents[how.__name__] = made.read_bytes() if made.exists() else b""
        made.unlink(missing_ok=True)
    assert len(said) == 1
    if not any(contents.values()):  # LLVM 19 refuses -Xarch_host -O2
        return
    assert name == "removed" or contents["plain"] != contents["with_policy"]
    assert contents["run"] == contents["with_policy" if is_at_oz else "plain"]


@pytest.mark.parametrize(
    ("levels", "level", "decides"), [("Oz", "O2", False), ("Oz,O2", "O2", True), ("Oz", "Oz", True)]
)
def test_the_plugin_knows_the_level_by_itself(
    compiler: Compiler, place: Path, levels: str, level: str, decides: bool
) -> None:
    """Whoever loads it, and however the level was chosen."""
    for name, options in {"plain.o": [], "made.o": [load_option(compiler.plugin)]}.items():
        command = [compiler.clang, *options, f"-{level}", "-c", "lean.c", "-o", name]
        assert run(command, place, {"MLGO_INLINER_LEVELS": levels}).returncode == 0
    assert ((place / "plain.o").read_bytes() != (place / "made.o").read_bytes()) == decides


def test_a_linked_program_has_functions_of_several_levels(
    compiler: Compiler, toolchain: Toolchain, place: Path
) -> None:
    """The linker's own level is none of size: each caller is marked with its own."""
    for level in ("Oz", "O2"):
        text = LARGE[len(LEAN) :].replace("static int work", f"int work_{level}").replace("work(", f"work_{level}(")
        for name in "abcd":
            text = text.replace(f"int {name}(", f"int {name}_{level}(")
        (place / f"{level}.c").write_text(text)
        assert compiler.plain([f"-{level}", "-flto", "-fPIC", "-c", f"{level}.c"], place).returncode == 0
    link = "-Oz -flto -fuse-ld=lld -shared -nostdlib Oz.o O2.o -o linked.so".split()
    calls = {}
    for how in (compiler.plain, compiler.run):
        assert how(link, place).returncode == 0
        command = [str(toolchain.tool("llvm-size").with_name("llvm-objdump")), "-d", "linked.so"]
        code = run(command, place).stdout
        calls[how.__name__] = {
            level: len(re.findall(f"(call|jmp).*<work_{level}(@plt)?>", code)) for level in ("Oz", "O2")
        }
    assert calls["run"] == calls["plain"] | {"Oz": 0}
    assert min(calls["plain"].values()) == 4


def test_info_names_the_variables_that_change_objects(compiler: Compiler, place: Path) -> None:
    plain = compiler.run(["--mlgo-info"], place, {OVERRIDE: ""}).stdout
    for name in (OVERRIDE, "CPATH", "C_INCLUDE_PATH", "COMPILER_PATH", "SOURCE_DATE_EPOCH", "CLANG_NO_DEFAULT_CONFIG"):
        assert f"\nvariable: {name}=1\n" in compiler.run(["--mlgo-info"], place, {name: "1"}).stdout
    assert os.environ.get("CPATH") or "CPATH" not in plain


def test_remarks_are_readable(compiler: Compiler, place: Path) -> None:
    """As plain clang's, with the costs, unless the policy decided otherwise."""
    (place / "calls.c").write_text(
        f"{LEAN}static int one(int x) {{ return x + 1; }} int two(void) {{ return one(5); }}"
    )
    arguments = ["-Oz", "-Rpass=inline", "-Rpass-missed=inline", "-c", "calls.c"]
    shown = {how.__name__: how(arguments, place).stderr.splitlines() for how in (compiler.plain, compiler.run)}
    agreed, plain, policy = (
        [line for line in shown[how] if name in line]
        for how, name in (("run", "'one'"), ("plain", "'area'"), ("run", "'area'"))
    )
    assert agreed == [line for line in shown["plain"] if "'one'" in line]
    assert len(agreed) == 1 and "with (cost=" in agreed[0]
    assert all("not inlined" in line for line in plain)
    by_policy = [line for line in policy if "'area' inlined into '" in line and "' by the policy at callsite " in line]
    assert by_policy
    # Once the policy has inlined some calls, the last of all is a bargain for the default, too.
    assert all(line in by_policy or line in plain or "' with (cost=" in line for line in policy)
