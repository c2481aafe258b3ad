import re
import shlex
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.command_lines.cc1_options import DROPPED, KEPT, REASONS, entries
from compiler_opt.corpus.command_lines.command_line import checked_options, compile_command, opt_command
from compiler_opt.corpus.making.extract import BITCODE_SECTION, COMMAND_SECTION, Reader
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_comparison import compare

TYPICAL = (
    "-cc1",
    "-triple",
    "x86_64-pc-linux-gnu",
    "-Oz",
    "-emit-obj",
    "-D",
    "NDEBUG",
    "-Iinclude",
    "-fembed-bitcode=all",
)

SOURCE = """
#include <string>
#include <vector>
namespace { int twice(int x) { return 2 * x; } }
int sum(const std::vector<std::string> &texts) {
  int result = 0;
#ifdef __EXCEPTIONS
  for (const auto &text : texts) try { result += twice(std::stoi(text)); } catch (...) { result--; }
#endif
  return result;
}
"""

BUILDS = """
-Oz
-Os -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections -fPIC -fvisibility=hidden -DSOME="thing"
-O2 -g -gdwarf-4 -fdebug-info-for-profiling -fno-plt -fcf-protection=full -fstack-protector-strong -mavx -MD
-O3 -ffast-math -fno-omit-frame-pointer -fno-semantic-interposition -fwrapv -fno-strict-aliasing -Wall -std=c++17
-O2 -fno-asynchronous-unwind-tables -mno-red-zone -fno-pic -mcmodel=large -fno-jump-tables -fno-builtin-memcpy
-O1 -fsanitize=undefined -fno-sanitize-recover=all -fno-threadsafe-statics -fno-inline -mllvm -inline-threshold=10
"""

DRIVER_OPTIONS = """
-Oz --target=aarch64-linux-gnu -mbranch-protection=standard -moutline-atomics -mcpu=cortex-a76
-Oz --target=riscv64-linux-gnu -march=rv64gc -mabi=lp64d
-Oz --target=armv7a-linux-gnueabihf -mfpu=neon -mthumb
-O2 --target=powerpc64le-linux-gnu
-O2 --target=s390x-linux-gnu
-O2 --target=mips64-linux-gnuabi64
-O2 -include cstdio -isystem /usr/include/x -iquote . -idirafter /tmp -stdlib=libstdc++
-O2 -fcoverage-prefix-map=/a=b -ffile-prefix-map=/a=. -fmacro-prefix-map=/a=. -ffile-compilation-dir=.
-O2 -fsave-optimization-record -fstack-usage -serialize-diagnostics x.dia -Rpass=inline -ferror-limit=3 -fopenmp
-O2 -fzero-call-used-regs=used-gpr -mharden-sls=all -mindirect-branch-cs-prefix -mretpoline -fstack-clash-protection
-O2 -gz=zlib -g -gsplit-dwarf -fno-ident -frounding-math -fbasic-block-sections=all -falign-loops=16
-O0 -fms-extensions -fno-char8_t -fsized-deallocation -ftemplate-depth=900 -fconstexpr-steps=1000 -funsigned-char
"""

SMALL_SOURCE = """
struct Shape { virtual ~Shape(); int size; virtual int area() const { return size * size; } };
int table[64], total;
template <class T> T twice(T x) { return x + x; }
int sum(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * table[i & 63]; return s; }
int area(const Shape *shape, int (*f)(int)) { static int calls; return shape->area() + twice(f(calls++)) + total++; }
"""

FEW_BUILDS = """
-Og -g
-static -frecord-command-line -fopenmp-simd -fno-gnu-keywords -ftime-report -save-stats -ftime-trace
-fPIC -fsemantic-interposition -fvisibility-from-dllstorageclass -masm=intel -mskip-rax-setup
-std=c++20 -fmodules -fmodules-cache-path=cache -fpch-instantiate-templates -fparse-all-comments -fno-caret-diagnostics
-g -gz -gstrict-dwarf -gembed-source -gpubnames -gno-inline-line-tables -fdebug-macro -fdebug-ranges-base-address
-g -gomit-unreferenced-methods -gtemplate-alias -gsimple-template-names -Wa,--compress-debug-sections
-g -Xclang -fexperimental-assignment-tracking=forced -fprofile-update=atomic -fdiagnostics-format=msvc
-fsanitize=memory -fsanitize-memory-track-origins
-fsanitize=undefined -fsanitize-minimal-runtime -fsanitize-undefined-strip-path-components=2
-fsanitize=fuzzer-no-link
-fsanitize-coverage=trace-pc-guard,indirect-calls,trace-cmp
-fsanitize=hwaddress --target=aarch64-linux-android
--target=aarch64-linux-gnu -mglobal-merge -fglobal-isel -Wno-everything
--target=armv7a-linux-gnueabihf -mimplicit-it=always
"""
"""Less common options, with a source that compiles for every target."""

HOSTILE = """
-load evil.so
-plugin evil
-add-plugin evil
-plugin-arg-evil x
-fpass-plugin=evil.so
-o /etc/passwd
@/etc/passwd
-mlink-bitcode-file evil.bc
-mlink-builtin-bitcode evil.bc
-fprofile-instrument-use-path=/etc/passwd
-fprofile-sample-use=/etc/passwd
-fprofile-instrument=clang
-fprofile-remapping-file=/etc/passwd
-fthinlto-index=/etc/passwd
-fthin-link-bitcode=/tmp/evil
-fxray-instrument
-fembed-offload-object=/etc/passwd
-fbasic-block-sections=list=/etc/passwd
-fsymbol-partition=x
-ivfsoverlay evil.yaml
-ast-dump
-E
-P
-mllvm -load=evil.so
-mllvm -stats-output-filename=/tmp/evil
-mllvm -pgo-instr-gen
-mllvm --print-before-all
-mllvm -inline-threshold=/etc/passwd
-mllvm @/etc/passwd
-triple /etc/passwd
-target-cpu @/etc/passwd
/etc/passwd
evil.bc
-
--
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def driver_cc1_options(clang: str, options: str, folder: Path) -> tuple[str, ...]:
    """The cc1 options that clang's driver derives from `options`, as `.llvmcmd` records them."""
    (folder / "a.cc").touch()
    command = [clang, "-###", "-c", "a.cc", *shlex.split(options)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    words = next(shlex.split(line)[1:] for line in result.stderr.splitlines() if '"-cc1"' in line)
    output = words.index("-o")
    del words[output : output + 2]
    # The input is last.
    return tuple(words[:-1])


def test_the_command_of_opt() -> None:
    options = ["-cc1", "-O2", "-I", "include", "-mllvm", "-enable-gvn-hoist", "-Oz", "-mllvm", "-emulated-tls"]
    for passes, expected in (("", "default<Oz>"), ("scc-oz-module-inliner", "scc-oz-module-inliner")):
        command = opt_command("opt-22", options, "m.bc", "out.bc", ["-ours"], passes)
        assert command == [
            *("opt-22", f"-passes={expected}", "-enable-gvn-hoist", "-emulated-tls", "-ours", "m.bc", "-o", "out.bc")
        ]
    assert opt_command("opt", ["-cc1"], "m.bc", "out.bc")[1] == "-passes=default<O0>"
    with pytest.raises(CorpusError, match="-load"):
        opt_command("opt", ["-cc1", "-load", "x.so"], "m.bc", "out.bc")


def test_front_end_options_go_and_code_generation_stays() -> None:
    assert checked_options(TYPICAL) == ("-triple", "x86_64-pc-linux-gnu", "-Oz")


def test_the_command() -> None:
    command = compile_command("clang", TYPICAL, "m.bc", "m.o", ["-mllvm", "-x"])
    assert command == [
        *("clang", "-cc1", "-triple", "x86_64-pc-linux-gnu", "-Oz", "-emit-obj"),
        *("-Werror=override-module", "-mllvm", "-x"),
        *("-x", "ir", "m.bc", "-o", "m.o"),
    ]


@pytest.mark.ci
@pytest.mark.parametrize("options", lines(BUILDS))
def test_the_object_is_the_one_that_the_build_made(clang_path: str, options: str, tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text(SOURCE)
    plain = [clang_path, *shlex.split(options), "-c", "a.cc", "-o", "plain.o"]
    subprocess.run(plain, cwd=tmp_path, check=True)
    embedded = [clang_path, *shlex.split(options), "-Xclang", "-fembed-bitcode=all", "-c", "a.cc", "-o", "embedded.o"]
    subprocess.run(embedded, cwd=tmp_path, check=True)
    objcopy = Path(clang_path).resolve().with_name("llvm-objcopy")
    dump = [str(objcopy), "--dump-section=.llvmbc=a.bc", "--dump-section=.llvmcmd=a.cmd", "embedded.o", "/dev/null"]
    subprocess.run(dump, cwd=tmp_path, check=True)
    recorded = tuple((tmp_path / "a.cmd").read_text().rstrip("\0").split("\0"))
    subprocess.run(compile_command(clang_path, recorded, "a.bc", "again.o"), cwd=tmp_path, check=True)
    assert (tmp_path / "again.o").read_bytes() == (tmp_path / "plain.o").read_bytes()


@pytest.mark.parametrize("options", lines(FEW_BUILDS))
def test_the_object_is_the_one_that_an_unusual_build_made(clang_path: str, options: str, tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text(SMALL_SOURCE)
    # Some options are recorded in the object, so one build must yield both object and bitcode.
    command = [clang_path, "-O2", *shlex.split(options), "-Xclang", "-fembed-bitcode=all", "-c", "a.cc", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    [module] = Reader().read(ObjectFile(tmp_path / "a.o", "a.o"))
    (tmp_path / "a.bc").write_bytes(module.code)
    subprocess.run(compile_command(clang_path, module.options, "a.bc", "again.o"), cwd=tmp_path, check=True)
    original, again = (ElfFile.read(tmp_path / name) for name in ("a.o", "again.o"))
    assert compare(original, again, (BITCODE_SECTION, COMMAND_SECTION)) == ()


def test_bitcode_of_others_is_verified() -> None:
    recorded = ("-cc1", "-disable-llvm-verifier", "-Oz")
    assert checked_options(recorded) == ("-Oz",)
    assert checked_options(recorded, trusted=True) == recorded[1:]


def test_refusals_say_why() -> None:
    for option, reason in (
        ("-fpass-plugin=evil.so", "it loads code"),
        ("-coverage-notes-file=a.gcno", "it writes other files"),
        ("-fprofile-instrument=clang", "it reads a profile, or makes programs write one"),
        ("@response", "it reads other files"),
        ("-fno-integrated-as", "the object came from an assembler that is not clang's"),
    ):
        with pytest.raises(CorpusError, match=re.escape(f"may use ({reason}); remove it from the module's .cmd file")):
            checked_options((*TYPICAL, option))
    starts = [start for starts in REASONS.values() for start in starts.split()]
    listed = set(entries(KEPT + DROPPED))
    # A reason that is never given is useless.
    on_list = {entry for entry in listed if entry.startswith(tuple(starts))}
    assert on_list == {"-fprofile-update=<value>"}


@pytest.mark.parametrize("options", lines(DRIVER_OPTIONS))
def test_what_real_builds_use_is_allowed(clang_path: str, options: str, tmp_path: Path) -> None:
    assert "-emit-obj" not in checked_options(driver_cc1_options(clang_path, options, tmp_path))


@pytest.mark.parametrize("options", lines(HOSTILE))
def test_what_reaches_outside_is_refused_by_name(options: str) -> None:
    with pytest.raises(CorpusError) as error:
        checked_options((*TYPICAL, *options.split(" ")))
    assert options.split(" ")[-1][:10] in str(error.value) or options.split(" ")[0] in str(error.value)
    assert "\n" not in str(error.value)


def test_other_outputs_are_dropped() -> None:
    outputs = ("-dependency-file", "/tmp/x.d", "-serialize-diagnostic-file", "/tmp/x", "-opt-record-file", "/tmp/y")
    folder = ("-working-directory", "/")
    more = ("-split-dwarf-output", "/tmp/z", "-stats-file=/tmp/x", "-ftime-trace=/tmp/x", "-fmodule-output=/tmp/x")
    assert checked_options((*TYPICAL, *outputs, *more, *folder)) == checked_options(TYPICAL)


def test_modules_and_headers_that_the_bitcode_has_behind_it_are_dropped() -> None:
    """They are not passed on: clang would not find these files."""
    inputs = ("-include-pch", "evil.pch", "-fmodule-file=x=evil.pcm", "-fmodule-map-file=evil", "-fmodules")
    more = ("-fmodules-cache-path=/tmp/evil", "-fprebuilt-module-path=/tmp/evil", "-fmodule-name=x")
    assert checked_options((*TYPICAL, *inputs, *more)) == checked_options(TYPICAL)


@pytest.mark.parametrize("options", [(), ("-Oz",), ("clang", "-cc1"), ("@file",)])
def test_what_is_no_cc1_command_line(options: tuple[str, ...]) -> None:
    with pytest.raises(CorpusError, match="start with '-cc1'"):
        checked_options(options)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(CorpusError, match="'-triple' is the last option"):
        checked_options(("-cc1", "-triple"))


@given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from(entries(KEPT + DROPPED)))))
def test_only_listed_options_and_plain_values_pass(options: list[str]) -> None:
    try:
        kept = checked_options(("-cc1", *options))
    except CorpusError as error:
        assert "\n" not in str(error)
        return
    assert all(re.fullmatch(r"[A-Za-z0-9_.,:=+-]*", word) for word in kept)
    # Idempotent.
    assert checked_options(("-cc1", *kept)) == kept


def test_every_listed_option_is_known_to_a_tested_compiler(tmp_path: Path) -> None:
    """Guards against typos in the tables; only for flags, since other options need valid values."""
    (tmp_path / "a.ll").write_text("")
    flags = [entry for entry in entries(KEPT + DROPPED) if "<value>" not in entry]
    unknown = []
    for clang in ("clang-19", "clang-22"):
        command = [clang, "-cc1", *(flag for flag in flags if flag != "-cc1"), "-x", "ir", "a.ll", "-o", "a.o"]
        stderr = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr
        unknown.append(set(re.findall(r"unknown argument:? '([^']+)'", stderr)))
    assert unknown[0] & unknown[1] == set()


def test_options_are_in_one_table() -> None:
    kept, dropped = entries(KEPT), entries(DROPPED)
    assert len(set(kept)) == len(kept)
    assert len(set(dropped)) == len(dropped)
    assert not set(kept) & set(dropped)


def test_long_command_lines_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            checked_options((*TYPICAL, "-main-file-name", f"{number}{'x' * (1 << 20)}"))
        assert tracemalloc.get_traced_memory()[0] < 8 << 20
    finally:
        tracemalloc.stop()
