"""Corpora of real builds are rebuilt and compared; deliberate changes are found and named."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compiler_opt.collect import verify
from compiler_opt.collect.verify import Verification
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.builds.archive import objects_of_archive
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.extract import ObjectFile, extract
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from tests.corpus.making.original_objects_test import KEEP
from tests.corpus.making.thinlto_test import compile_for_lto, run
from tests.probed import probed
from tests.small_corpus import SOURCES

CPP = """
struct Shape { virtual ~Shape() {} virtual int area() const { return 0; } };
template <int N> struct Square : Shape { int area() const override { return N * N; } };
struct Counter { Counter(); int counts[4]; };
static Counter counter;
void may_throw(const char *);
int count(const char *word) {
  static Square<3> square;
  Square<5> other;
  try { may_throw(word); return counter.counts[square.area() % 4] + other.area(); } catch (int error) { return error; }
}
"""
C = SOURCES["plain/list.c"]

BUILT: Mapping[str, tuple[str, str]] = {
    "O0.c": (C, "-O0 -g"),
    "O2.c": (C, "-O2 -fPIC -ffunction-sections -fdata-sections"),
    "O0.cpp": (CPP, "-O0 -fPIC"),
    "O2.cpp": (CPP, "-O2 -g -ffunction-sections"),
    "Oz.cpp": (CPP, "-Oz -g -fdebug-info-for-profiling -fvisibility=hidden"),
}
"""By name of the source: its text and how it is compiled."""

SPOILT: Mapping[str, tuple[str, str]] = {
    "asan.c": ("const char *f(int i) { static char a[9]; return a + i; }", "-O1 -fsanitize=address"),
    "dwo.c": (C, "-O2 -g -gsplit-dwarf"),
    "changed.c": (C, "-O2"),
    "coverage.c": (C, "-O2 -fprofile-instr-generate"),
    "gone.c": (C, "-O2"),
    "again.c": (C, "-O2"),
    "link.c": (C, "-O2"),
    "stripped.c": (C, "-O2 -g"),
}


def build(root: Path, clang: Path, sources: Mapping[str, tuple[str, str]]) -> Corpus:
    """Builds into `root/build`, and extracts a corpus from it."""
    (root / "build").mkdir(parents=True)
    objects = []
    for name, (text, options) in sources.items():
        compile_one(root / "build", clang, name, text, options)
        objects.append(ObjectFile(root / "build" / f"{name}.o", f"{name}.o"))
    assert extract(objects, root / "corpus").failures == ()
    return Corpus.load(root / "corpus")


def compile_one(folder: Path, clang: Path, name: str, text: str, options: str) -> None:
    (folder / name).write_text(text)
    command = [str(clang), *options.split(), "-Xclang", "-fembed-bitcode=all", "-c", name, "-o", f"{name}.o"]
    subprocess.run(command, cwd=folder, check=True)


def verified(corpus: Corpus, folder: Path, toolchain: Toolchain, pool: WorkerPool) -> dict[str, Verification]:
    return {result.module: result for result in verify.verify(corpus.modules, folder, toolchain, pool)}


@pytest.fixture(scope="module", name="newest")
def newest_fixture() -> Toolchain:
    return probed("clang-22")


@pytest.fixture(scope="module", name="pool")
def pool_fixture(newest: Toolchain) -> Iterator[WorkerPool]:
    with WorkerPool(newest, INLINING_PROBLEM, 1) as pool:
        yield pool


@pytest.mark.ci
@pytest.mark.both_compilers
def test_a_corpus_rebuilds_its_objects(toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = build(tmp_path, toolchain.clang, BUILT)
    with WorkerPool(toolchain, INLINING_PROBLEM, 1) as pool:
        results = verified(corpus, tmp_path / "build", toolchain, pool)
        kept = [path for path in pool.scratch.iterdir() if path.suffix == ".o"]
    assert set(results) == {f"{name}.o" for name in BUILT}
    assert [result.describe() for result in results.values()] == ["identical"] * len(BUILT)
    assert all(result.is_identical and result.is_good for result in results.values())
    assert kept == []


def test_another_compiler_explains_everything(pool: WorkerPool, newest: Toolchain, tmp_path: Path) -> None:
    older = probed("clang-19")
    # Enough code that compilers differ.
    source = (
        "#include <map>\nint count(std::map<int, long> &seen, int word) { return int(++seen[word] + seen.erase(9)); }"
    )
    corpus = build(tmp_path, older.clang, {"map.cpp": (source, "-O2")})
    [result] = verified(corpus, tmp_path / "build", newest, pool).values()
    assert not result.is_identical and result.is_good
    versions = (".".join(map(str, each.version)) for each in (older, newest))
    assert "made by another compiler: LLVM {}, compiled again by LLVM {}".format(*versions) in result.describe()


def test_errors_name_the_module(pool: WorkerPool, newest: Toolchain, tmp_path: Path) -> None:
    corpus = build(tmp_path, newest.clang, SPOILT)
    folder = tmp_path / "build"
    # The corpus's options differ from the build's.
    command = tmp_path / "corpus" / "changed.c.o.cmd"
    command.write_bytes(command.read_bytes().replace(b"-O2\0", b"-O0\0"))
    (folder / "gone.c.o").unlink()
    compile_one(folder, newest.clang, "again.c", C + "int more(void) { return 3; }", "-O2")
    outside = tmp_path / "outside.o"
    shutil.move(folder / "link.c.o", outside)
    (folder / "link.c.o").symlink_to(outside)
    subprocess.run(["llvm-objcopy-22", "--strip-debug", "stripped.c.o"], cwd=folder, check=True)

    results = verified(corpus, folder, newest, pool)
    words = {
        "asan.c.o": "AddressSanitizer records the name of the compiled file",
        "dwo.c.o": "-gsplit-dwarf puts debug information into another file",
        "changed.c.o": ".text: ",
        "coverage.c.o": "'-fprofile-instrument=clang' is not an option that a corpus may use",
        "gone.c.o": "no such object; give the folder that module names are relative to",
        "again.c.o": "has other bitcode than the corpus: it was rebuilt",
        "link.c.o": "is a link that leaves the folder",
        "stripped.c.o": ".debug_info: not in the original",
    }
    for name, expected in words.items():
        assert expected in results[name].describe()
        assert "\n" not in results[name].describe()
        assert not results[name].is_identical
    assert {name for name, result in results.items() if result.is_good} == {"asan.c.o", "dwo.c.o"}
    assert {name for name, result in results.items() if result.failure} == {
        *("coverage.c.o", "gone.c.o", "again.c.o", "link.c.o")
    }


def test_an_explanation_must_cover_all_differences(pool: WorkerPool, newest: Toolchain, tmp_path: Path) -> None:
    """An option that explains one difference does not explain others."""
    corpus = build(tmp_path, newest.clang, {name: SPOILT[name] for name in ("asan.c", "dwo.c")})
    for name in ("asan.c", "dwo.c"):
        command = tmp_path / "corpus" / f"{name}.o.cmd"
        command.write_bytes(command.read_bytes().replace(b"-O1\0", b"-O0\0").replace(b"-O2\0", b"-O0\0"))
    results = verified(corpus, tmp_path / "build", newest, pool)
    assert not any(result.is_good for result in results.values())


def test_modules_of_archives_and_links(pool: WorkerPool, newest: Toolchain, tmp_path: Path) -> None:
    """Members of archives and the objects of a ThinLTO link are compared; a part of `ld -r` is named."""
    folder = tmp_path / "build"
    folder.mkdir()
    for name, text in (("a.c", C), ("b.c", "int second(void) { return 2; }")):
        compile_one(folder, newest.clang, name, text, "-O2")
    subprocess.run(["llvm-ar-22", "qc", "libx.a", "a.c.o"], cwd=folder, check=True)
    subprocess.run(["ld", "-r", "a.c.o", "b.c.o", "-o", "both.o"], cwd=folder, check=True)
    objects = [*objects_of_archive(folder / "libx.a", folder), ObjectFile(folder / "both.o", "both.o")]
    extract(objects, tmp_path / "corpus")
    results = verified(Corpus.load(tmp_path / "corpus"), folder, newest, pool)
    assert results.pop("libx.a/a.c.o").is_identical
    assert set(results) == {"both.o.0", "both.o.1"}
    for result in results.values():
        assert not result.is_good and "that a linker made of several (ld -r)" in result.describe()


def test_a_link_with_thinlto(pool: WorkerPool, newest: Toolchain, tmp_path: Path) -> None:
    build = tmp_path / "build"
    objects = compile_for_lto(str(newest.clang), build, "-g")
    run(build, str(newest.clang), "-flto=thin", "-fuse-ld=lld", "-g", *objects, *KEEP, "-o", "program")
    thinlto.extract(thinlto.link_of_directory(build), tmp_path / "corpus")
    corpus = Corpus.load(tmp_path / "corpus")
    results = verified(corpus, build, newest, pool)
    assert [result.describe() for result in results.values()] == ["identical"] * len(objects)
    shutil.copy(build / "lib" / "other.o.3.import.bc", build / "main.o.3.import.bc")
    assert "has other bitcode than the corpus" in verified(corpus, build, newest, pool)["main.o"].describe()


def test_fused_multiplications(toolchain: Toolchain, tmp_path: Path) -> None:
    source = "double sin(double), pow(double, double); double f(double x) { return sin(x) + pow(x, 3); }"
    corpus = build(tmp_path, toolchain.clang, {"fused.c": (source, "-O3 -march=x86-64-v3 -ffast-math")})
    with WorkerPool(toolchain, INLINING_PROBLEM, 1) as pool:
        [result] = verified(corpus, tmp_path / "build", toolchain, pool).values()
    if toolchain.version[0] >= 22:
        assert "ignores -ffp-contract=fast for bitcode" in result.describe()
        assert ".text: " in result.describe()
    else:
        assert result.is_identical


def test_samples(newest: Toolchain, tmp_path: Path) -> None:
    modules = build(tmp_path, newest.clang, {f"{n}.c": ("int x;", "-O0") for n in "abcdef"}).modules
    drawn = verify.sample(modules, 3, seed=1)
    assert len(drawn) == 3 and drawn == verify.sample(modules, 3, seed=1)
    assert [module.name for module in drawn] == sorted(module.name for module in drawn)
    assert any(verify.sample(modules, 3, seed) != drawn for seed in range(9))
    assert verify.sample(modules, None, 0) == verify.sample(modules, 99, 0) == list(modules)
    with pytest.raises(ConfigError, match="at least 1, found 0"):
        verify.sample(modules, 0, 0)
