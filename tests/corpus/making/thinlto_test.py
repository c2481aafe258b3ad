"""Corpora of ThinLTO builds, made by real linkers: every module compiles to the object of the build, bit for bit."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.corpus.builds.objects import ObjectFile, objects_of_directory
from compiler_opt.corpus.command_lines.command_line import compile_command, index_path
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import CorpusError, PolicyError
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.toolchain import Toolchain

SOURCES = {
    "main": "int helper(int); int other(int); int main(int n, char **) { return helper(n) * other(n); }",
    "lib/help": "static int twice(int x) { return 2 * x + 1; }\nint helper(int x) { return twice(x) + 3; }",
    "lib/other": "int table[9]; int helper(int);\n"
    "int other(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= table[i] * helper(i); return s; }",
}
_INLINING = problems.load("inlining")
EMBED = ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"]


def run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True)


def compile_for_lto(clang_path: str, root: Path, *flags: str) -> list[str]:
    (root / "lib").mkdir(parents=True)
    for name, source in SOURCES.items():
        (root / f"{name}.cc").write_text(source)
        run(root, clang_path, "-O2", "-flto=thin", *flags, "-c", f"{name}.cc", "-o", f"{name}.o")
    return [f"{name}.o" for name in SOURCES]


@pytest.fixture(name="distributed", scope="module")
def distributed_fixture(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distributed build: `native/` has the backends' objects with bitcode, `plain/` those without."""
    root = tmp_path_factory.mktemp("distributed")
    objects = compile_for_lto(clang_path, root)
    run(root, clang_path, "-flto=thin", "-fuse-ld=lld", "-Wl,--thinlto-index-only", *objects, "-o", "program")
    for name in SOURCES:
        backend = [clang_path, "-O2", "-x", "ir", f"{name}.o", f"-fthinlto-index={name}.o.thinlto.bc", "-c"]
        for kind, flags in (("native", EMBED), ("plain", [])):
            target = root / kind / f"{name}.o"
            target.parent.mkdir(parents=True, exist_ok=True)
            run(root, *backend, *flags, "-o", str(target))
    return root


def recompiled(corpus: Corpus, clang_path: str, folder: Path) -> dict[str, bytes]:
    """The objects of all modules, by module."""
    objects = {}
    for module in corpus.modules:
        command = compile_command(clang_path, module.options(), module.bitcode_path, folder / "again.o")
        subprocess.run(command, cwd=folder, check=True)
        objects[module.name] = (folder / "again.o").read_bytes()
    return objects


@pytest.mark.both_compilers
def test_a_distributed_build_is_rebuilt(distributed: Path, clang_path: str, tmp_path: Path) -> None:
    objects = objects_of_directory(distributed / "native").objects
    extraction = extract(objects, tmp_path / "corpus", thinlto_base=distributed)
    assert extraction.failures == ()
    corpus = Corpus.load(tmp_path / "corpus")
    assert corpus.has_thinlto
    assert corpus.global_command_override is None
    again = recompiled(corpus, clang_path, tmp_path)
    assert again == {f"{name}.o": (distributed / "plain" / f"{name}.o").read_bytes() for name in SOURCES}
    for module in corpus.modules:
        index = distributed / f"{module.name}.thinlto.bc"
        assert index_path(module.bitcode_path).read_bytes() == index.read_bytes()


def test_a_backend_is_asked_without_plugins(distributed: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    extract(objects_of_directory(distributed / "native").objects, tmp_path / "corpus", thinlto_base=distributed)
    modules, kept = Corpus.load(tmp_path / "corpus").by_name, tmp_path / "kept.o"
    for name, expected in (("inlining", True), ("regalloc_eviction", False)):
        problem = problems.load(name)
        default = problem.decision.default_policy or DefaultPolicy(problem)
        # With a channel that nobody serves, it would hang until the timeout.
        settings = RolloutSettings(timeout_s=60)
        result = rollout(
            modules["main.o"],
            default,
            problem,
            toolchain,
            scratch=tmp_path,
            settings=settings,
            keep_object=kept,
        )
        assert result.failure is None
        assert (result.trajectory is not None) == expected
        assert kept.read_bytes() == (distributed / "plain" / "main.o").read_bytes()
    with pytest.raises(PolicyError, match=r"main\.o: as the backend of a ThinLTO link clang loads no plugin"):
        settings = RolloutSettings(backend="plugin")
        rollout(modules["main.o"], DefaultPolicy(_INLINING), _INLINING, toolchain, scratch=tmp_path, settings=settings)
    with pytest.raises(PolicyError, match=r"main\.o: only our plugin computes the features is_cold, and as"):
        extended = with_plugin_features(toolchain, ["is_cold"])
        rollout(modules["main.o"], DefaultPolicy(_INLINING), _INLINING, extended, scratch=tmp_path)


def test_the_index_is_found_where_the_backend_ran(distributed: Path, tmp_path: Path) -> None:
    objects = [ObjectFile(distributed / "native" / "main.o", "main.o")]
    extract(objects, tmp_path / "corpus", thinlto_base=tmp_path)
    assert (tmp_path / "corpus" / "main.o.thinlto.bc").exists()


def test_an_index_that_is_missing_is_named(distributed: Path, clang_path: str, tmp_path: Path) -> None:
    corpus_dir = tmp_path / "corpus"
    extract([ObjectFile(distributed / "native" / "main.o", "main.o")], corpus_dir, thinlto_base=distributed)
    module = Corpus.load(corpus_dir).modules[0]
    index_path(module.bitcode_path).unlink()
    with pytest.raises(CorpusError, match=r"main.o.thinlto.bc: expected the module's ThinLTO index, found none"):
        compile_command(clang_path, module.options(), module.bitcode_path, tmp_path / "x.o")
    index_path(module.bitcode_path).symlink_to("/etc/hostname")
    with pytest.raises(CorpusError, match=r"is a link that leaves the corpus"):
        Corpus.load(corpus_dir)


def test_a_file_named_as_index_must_be_bitcode(distributed: Path, tmp_path: Path) -> None:
    item = ObjectFile(Path("x.o"), "x.o")
    (tmp_path / "secret").write_text("not bitcode")
    for index, message in (
        ("secret", r"x.o: its ThinLTO index .*secret: expected LLVM bitcode"),
        ("gone", r"x.o: its ThinLTO index .*gone: cannot be read .*--obj_base_dir"),
        ("/dev/zero", "cannot be read"),
    ):
        with pytest.raises(CorpusError, match=message):
            thinlto.read_index(item, ("-cc1", f"-fthinlto-index={index}"), tmp_path)
    with pytest.raises(CorpusError, match=r"was not compiled with -fthinlto-index=; .* leave out --thinlto_build"):
        thinlto.read_index(item, ("-cc1", "-O2"), tmp_path)


@pytest.mark.parametrize(
    ("compiled", "linked"),
    [
        (["-fno-pic"], ["-O2", "-no-pie"]),
        (["-fPIC"], ["-O3", "-shared", "-march=x86-64-v2", "-Wl,-mllvm,-inline-threshold=3"]),
        (["-fPIE"], ["-O1", "-Wl,-O1,--lto-O2"]),
    ],
)
def test_a_local_build_is_rebuilt(clang_path: str, tmp_path: Path, compiled: list[str], linked: list[str]) -> None:
    build = tmp_path / "build"
    objects = compile_for_lto(clang_path, build, *compiled)
    archiver = str(Path(clang_path).resolve().with_name("llvm-ar"))
    run(build, archiver, "qc", "lib/libother.a", "lib/other.o")
    inputs = [*objects[:2], "lib/libother.a"]
    words = ["-flto=thin", "-fuse-ld=lld", *linked, *inputs, "-o", "program"]
    (build / "link.params").write_text(" ".join(words))
    save = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files", "-Wl,--lto-obj-path=native"]
    run(build, clang_path, "@link.params", *save)
    link = thinlto.link_of_params(build / "link.params", build)
    assert [name.partition("(")[0] for name, _ in link.modules] == inputs
    thinlto.extract(link, tmp_path / "corpus", num_workers=2)
    corpus = Corpus.load(tmp_path / "corpus")
    assert corpus.has_thinlto
    native = {path.read_bytes() for path in build.glob("native*")}
    again = recompiled(corpus, clang_path, tmp_path)
    assert len(again) == 3
    assert set(again.values()) <= native


def test_a_folder_without_options_gets_lld_defaults(clang_path: str, tmp_path: Path) -> None:
    build = tmp_path / "build"
    objects = compile_for_lto(clang_path, build)
    save = ["-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files", "-Wl,--lto-obj-path=native"]
    run(build, clang_path, "-flto=thin", "-fuse-ld=lld", *objects, *save, "-o", "program")
    link = thinlto.link_of_directory(build)
    extraction = thinlto.extract(link, tmp_path / "corpus")
    assert extraction.modules == ("lib/help.o", "lib/other.o", "main.o")
    description = json.loads((tmp_path / "corpus" / "corpus_description.json").read_text())
    assert description["has_thinlto"] is True
    assert description["global_command_override"][:3] == ["-cc1", "-triple", "x86_64-pc-linux-gnu"]
    again = recompiled(Corpus.load(tmp_path / "corpus"), clang_path, tmp_path)
    assert set(again.values()) <= {path.read_bytes() for path in build.glob("native*")}
    # A damaged one is skipped, with the reason.
    (build / "main.o.thinlto.bc").write_bytes(b"")
    shutil.copy(build / "main.o", build / "lib" / "x.o.3.import.bc")
    extraction = thinlto.extract(thinlto.link_of_directory(build), tmp_path / "rest")
    assert extraction.modules == ("lib/help.o", "lib/other.o")
    assert [path.name for path, _ in extraction.failures] == ["x.o", "main.o"]


def test_links_without_saved_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.params").write_text("a.o /usr/lib/crt1.o")
    link = thinlto.link_of_params(tmp_path / "link.params", tmp_path)
    assert link.skipped == ("a.o", "/usr/lib/crt1.o")
    with pytest.raises(CorpusError, match=r"saved no file that ends in .3.import.bc; link with -Wl,--save-temps"):
        thinlto.extract(link, tmp_path / "corpus")
    with pytest.raises(CorpusError, match="expected the folder of a link"):
        thinlto.link_of_directory(tmp_path / "gone")
    assert not (tmp_path / "corpus").exists()


def test_link_options_that_affect_code() -> None:
    plain = thinlto.command_override(["-O1", "-mllvm", "-import-instr-limit=5"], "riscv64-linux-gnu")
    # The linker's own -O concerns string merging.
    assert "-O2" in plain
    assert plain[-2:] == ["-mllvm", "-import-instr-limit=5"]
    assert plain[plain.index("-mrelocation-model") + 1] == "static"
    options = ["--plugin-opt=O3", "--plugin-opt=mcpu=sifive-u74", "-plugin-opt=-unroll-count=2", "--pie", "--lto-O1"]
    other = thinlto.command_override(options, "riscv64-linux-gnu")
    assert "-O1" in other
    assert "-vectorize-loops" not in other
    assert other[-4:] == ["-target-cpu", "sifive-u74", "-mllvm", "-unroll-count=2"]
    assert other[other.index("-mrelocation-model") + 1] == "pic"
