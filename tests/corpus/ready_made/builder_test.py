import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.ready_made import builder
from compiler_opt.corpus.ready_made.cross_compiling import OWN_TARGET, Target
from compiler_opt.corpus.ready_made.manifest import Archive, Manifest, Measured, Project, Template, archives_of
from compiler_opt.corpus.ready_made.resume import FOLDER_NAME
from compiler_opt.errors import CorpusError, OutputError, ToolchainError
from compiler_opt.files import exclusive_directory

FILES = {
    "lib/one.c": '#include "config.h"\nconst char *where(void) { return __FILE__; }\nint one(void) { return LIMIT; }\n',
    "lib/two.cc": "template <class T> T twice(T x) { return x + x; }\nint two() { return twice(1); }\n",
    "lib/two_test.cc": "#error not to be compiled\n",
    "config.h.in": "#define LIMIT @LIMIT@\n",
}


def make_project(name: str, cache: Path, files: dict[str, str]) -> Project:
    """A project whose archive is in the cache already."""
    buffer = io.BytesIO()
    # Not compressed: gzip would add the time, so equal files would make different archives.
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    target = cache / "archives" / f"{name}-1.0-{digest[:16]}.tar.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(buffer.getvalue())
    return Project(
        name=name,
        licence="MIT",
        language="c++",
        archive=Archive(name, "1.0", digest),
        root=".",
        sources=("lib/*.c", "lib/*.cc"),
        exclude=("lib/*_test.cc",),
        flags=("-I.",),
        generated={"config.h": Template("config.h.in", {"LIMIT": "7"})},
    )


@pytest.fixture(name="cache")
def cache_fixture(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(name="known")
def known_fixture(cache: Path) -> Manifest:
    projects = {name: make_project(name, cache, FILES) for name in ("red", "green", "blue")}
    return Manifest(projects, {"tiny": {"train": ("red", "green"), "held_out": ("blue",)}})


def build(known: Manifest, clang: str, tmp_path: Path, folder: str = "corpora", **options: object) -> dict[str, Path]:
    options = {"cache_dir": tmp_path / "cache", "num_workers": 2, **options}
    return builder.build("tiny", tmp_path / folder, clang, known=known, **options)  # type: ignore[arg-type]


def test_each_split_is_a_corpus(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    corpora = build(known, clang_path, tmp_path, progress=lambda *call: calls.append(call))
    assert list(corpora) == ["train", "held_out"]
    train = Corpus.load(corpora["train"])
    assert [module.name for module in train.modules] == [
        *("red/lib/one.c.o", "red/lib/two.cc.o", "green/lib/one.c.o", "green/lib/two.cc.o"),
    ]
    assert list(train.projects()) == ["red", "green"]
    assert list(Corpus.load(corpora["held_out"]).projects()) == ["blue"]
    # Each project is a corpus, too.
    assert [module.name for module in Corpus.load(corpora["train"] / "red").modules] == ["lib/one.c.o", "lib/two.cc.o"]
    assert f"-{(train.compiler_version() or (0,))[0]}" in clang_path
    assert {("red", 2, 2), ("green", 2, 2), ("blue", 2, 2)} <= set(calls)
    # Only the corpora remain.
    assert sorted(path.name for path in (tmp_path / "corpora").iterdir()) == ["held_out", "train"]


@pytest.mark.both_compilers
def test_a_module_compiles_to_what_the_plain_compiler_makes(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    module = Corpus.load(build(known, clang_path, tmp_path)["held_out"]).by_name["blue/lib/one.c.o"]
    again = tmp_path / "again.o"
    subprocess.run(compile_command(clang_path, module.options(), module.bitcode_path, again), check=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.c").write_text(FILES["lib/one.c"])
    (tmp_path / "config.h").write_text("#define LIMIT 7\n")
    plain = [clang_path, "-Oz", "-DNDEBUG", "-I.", "-c", "lib/one.c", "-o", "plain.o"]
    subprocess.run(plain, cwd=tmp_path, check=True)
    assert again.read_bytes() == (tmp_path / "plain.o").read_bytes()


@pytest.mark.ci
def test_the_corpus_does_not_depend_on_its_folder(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    one = build(known, clang_path, tmp_path, "one")["train"]
    two = build(known, clang_path, tmp_path, "two/deeper", num_workers=1)["train"]
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert all((one / file).read_bytes() == (two / file).read_bytes() for file in files)


@pytest.mark.ci
def test_what_is_complete_is_kept_and_what_changed_is_made_again(
    known: Manifest, clang_path: str, tmp_path: Path
) -> None:
    corpora = build(known, clang_path, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "corpora").rglob("*.bc")}
    # Neither the network nor the archives are needed.
    for archive in (tmp_path / "cache" / "archives").iterdir():
        if not archive.name.startswith("red"):
            archive.unlink()
    build(known, clang_path, tmp_path)
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "corpora").rglob("*.bc")}
    changed = msgspec.structs.replace(known.projects["red"], flags=("-I.", "-DMORE"))
    build(Manifest({**known.projects, "red": changed}, known.sets), clang_path, tmp_path)
    remade = {path for path, when in times.items() if path.stat().st_mtime_ns != when}
    assert {path.relative_to(corpora["train"]).parts[0] for path in remade} == {"red"}
    assert len(Corpus.load(corpora["train"]).modules) == 4


@pytest.mark.ci
def test_another_compiler_makes_all_again(known: Manifest, tmp_path: Path) -> None:
    corpora = build(known, "clang-22", tmp_path)
    build(known, "clang-19", tmp_path)
    assert (Corpus.load(corpora["train"]).compiler_version() or (0,))[0] == 19


@pytest.mark.ci
def test_a_source_that_does_not_compile_is_named(known: Manifest, clang_path: str, tmp_path: Path, cache: Path) -> None:
    broken = make_project("green", cache, {**FILES, "lib/two.cc": "int f( {\n"})
    with pytest.raises(
        CorpusError, match=r"project green: lib/two\.cc does not compile: exit status 1: .*expected"
    ) as error:
        build(Manifest({**known.projects, "green": broken}, known.sets), clang_path, tmp_path)
    assert "\n" not in str(error.value)
    # The rest of the work is not lost.
    build(known, clang_path, tmp_path)


class _StoppedError(Exception):
    """Interrupts a build."""


@pytest.mark.ci
def test_what_was_compiled_before_an_end_is_kept_and_makes_the_same_corpus(
    known: Manifest, clang_path: str, tmp_path: Path
) -> None:
    def stop(_name: str, done: int, _total: int) -> None:
        if done:
            raise _StoppedError

    whole = build(known, clang_path, tmp_path, "whole")
    with pytest.raises(_StoppedError):
        build(known, clang_path, tmp_path, num_workers=1, progress=stop)
    unfinished = tmp_path / "corpora" / FOLDER_NAME
    kept = {path: path.stat().st_mtime_ns for path in unfinished.rglob("*.o")}
    assert 1 <= len(kept) <= 6
    # Objects of another level are not reused.
    with pytest.raises(_StoppedError):
        build(known, clang_path, tmp_path, level="O2", num_workers=1, progress=stop)
    assert not any(path.is_file() and path.stat().st_mtime_ns == when for path, when in kept.items())
    with pytest.raises(_StoppedError):
        build(known, clang_path, tmp_path, num_workers=1, progress=stop)
    assert list(unfinished.rglob("*.o"))
    corpora = build(known, clang_path, tmp_path)
    assert not unfinished.exists()
    for split in ("train", "held_out"):
        files = sorted(file.relative_to(whole[split]) for file in whole[split].rglob("*") if file.is_file())
        assert files == sorted(file.relative_to(corpora[split]) for file in corpora[split].rglob("*") if file.is_file())
        assert all((whole[split] / file).read_bytes() == (corpora[split] / file).read_bytes() for file in files)


@pytest.mark.ci
@pytest.mark.parametrize("lost", [b"", bytes(64)], ids=["empty", "zeros"])
def test_files_that_a_loss_of_power_emptied_are_made_again(lost: bytes, known: Manifest, tmp_path: Path) -> None:
    def stop(_name: str, done: int, _total: int) -> None:
        if done:
            raise _StoppedError

    corpora = build(known, "clang-22", tmp_path)
    red, green = corpora["train"] / "red", corpora["train"] / "green"
    for path in (
        red / "lib/one.c.o.bc",
        green / ".ready_made.json",
        green / "corpus_description.json",
        *([red / "lib/two.cc.o.cmd"] if not lost else []),
    ):
        good = path.read_bytes()
        path.write_bytes(lost)
        build(known, "clang-22", tmp_path)
        assert path.read_bytes() == good
    shutil.rmtree(tmp_path / "corpora")
    with pytest.raises(_StoppedError):
        build(known, "clang-22", tmp_path, num_workers=1, progress=stop)
    for path in (tmp_path / "corpora" / FOLDER_NAME).rglob("*.o"):
        path.write_bytes(lost)
    corpora = build(known, "clang-22", tmp_path)
    assert len(Corpus.load(corpora["train"]).modules) == 4


@pytest.mark.ci
def test_the_plan_is_announced_before_the_build(known: Manifest, clang_path: str, tmp_path: Path, cache: Path) -> None:
    sizes = {"red": (100, 3), "green": (20, 4), "blue": (3, 5)}
    projects = {
        name: msgspec.structs.replace(
            known.projects[name],
            archive=msgspec.structs.replace(known.projects[name].archive, num_bytes=archive_bytes),
            measured=Measured(2, corpus_bytes),
        )
        for name, (archive_bytes, corpus_bytes) in sizes.items()
    }
    known = Manifest(projects, known.sets)
    plans: list[builder.Plan] = []
    build(known, clang_path, tmp_path, announce=plans.append)
    # All archives are in the cache.
    assert (plans[-1].num_modules, plans[-1].download_bytes, plans[-1].corpus_bytes) == (6, 0, 3 + 4 + 5)
    for archive in (cache / "archives").glob("[rb]*"):
        archive.unlink()
    build(known, clang_path, tmp_path, announce=plans.append)
    assert plans[-1] == builder.Plan((), 0, 0)
    shutil.rmtree(tmp_path / "corpora" / "train")
    with pytest.raises(_ToldError):
        build(known, clang_path, tmp_path, announce=_tell)
    # Red must be fetched again; blue's corpus is complete, so its archive is not needed.
    assert _ToldError.plan == builder.Plan((projects["red"], projects["green"]), 100, 3 + 4)


class _ToldError(Exception):
    plan: builder.Plan


def _tell(plan: builder.Plan) -> None:
    _ToldError.plan = plan
    raise _ToldError


def test_too_little_space_is_reported_before_the_build(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    blue = msgspec.structs.replace(known.projects["blue"], measured=Measured(2, 1 << 60))
    with pytest.raises(OutputError, match=r"1152921504607 MB are needed, \d+ MB are free; free some space") as error:
        build(Manifest({**known.projects, "blue": blue}, known.sets), clang_path, tmp_path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "corpora").exists()


def test_one_process_at_a_time_works_in_a_folder(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    with (
        exclusive_directory(tmp_path / "corpora", "--output_dir"),
        pytest.raises(OutputError, match="another process is working in it; wait for it"),
    ):
        build(known, clang_path, tmp_path)
    build(known, clang_path, tmp_path)


def test_projects_of_one_archive_share_it(clang_path: str, tmp_path: Path, cache: Path) -> None:
    """For each project, only the files below its root are unpacked."""
    red = make_project("red", cache, {"a/lib/one.c": "int a;", "a/config.h.in": "", "b/lib/one.c": "int b;", "c.c": ""})
    projects = {
        name: msgspec.structs.replace(red, name=name, root=name, generated={}, measured=Measured(1, 1))
        for name in ("a", "b")
    }
    known = Manifest(projects, {"tiny": {"train": ("a", "b")}})
    plans: list[builder.Plan] = []
    train = Corpus.load(build(known, clang_path, tmp_path, announce=plans.append)["train"])
    assert [module.name for module in train.modules] == ["a/lib/one.c.o", "b/lib/one.c.o"]
    assert archives_of(plans[0].projects) == [red.archive]


def test_missing_sources_are_named(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    for changes, message in (
        ({"sources": ("*.rs",)}, "no file of its archive matches 'sources'"),
        ({"root": "nowhere"}, "its archive has no folder 'nowhere'"),
    ):
        wrong = msgspec.structs.replace(known.projects["blue"], **changes)  # type: ignore[arg-type]
        with pytest.raises(CorpusError, match=f"project blue: {message}"):
            build(Manifest({**known.projects, "blue": wrong}, known.sets), clang_path, tmp_path)


def test_the_users_own_files_are_safe(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    precious = tmp_path / "corpora" / "train" / "red" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("important")
    with pytest.raises(OutputError, match="is not a part of a ready-made corpus"):
        build(known, clang_path, tmp_path)
    assert precious.read_text() == "important"


@pytest.mark.ci
def test_another_target(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    """The target's headers are not needed, since no source here includes any."""
    elsewhere = msgspec.structs.replace(known.projects["green"], architectures=("x86_64", "s390x"))
    known = Manifest({**known.projects, "green": elsewhere}, known.sets)
    for folder, target, projects in (
        ("own", OWN_TARGET, ["red", "green"]),
        ("other", _WithoutHeaders("riscv64-linux-gnu"), ["red"]),
    ):
        train = Corpus.load(build(known, clang_path, tmp_path, folder, target=target)["train"])
        assert list(train.projects()) == projects
    assert train.targets("own") == {"riscv64-unknown-linux-gnu": 2}
    # The same folder for another target: nothing is reused.
    train = Corpus.load(build(known, clang_path, tmp_path, "other", target=_WithoutHeaders("s390x-linux-gnu"))["train"])
    assert train.targets("own") == {"s390x-unknown-linux-gnu": 4}


class _WithoutHeaders(Target):
    """A target whose headers are not checked."""

    def check(self, clang: Path | str) -> None:
        del clang


def test_an_output_that_cannot_be_made(known: Manifest, clang_path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        build(known, clang_path, tmp_path, "file/corpora")


def test_programs_that_are_not_compilers_are_refused(known: Manifest, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no such program"):
        build(known, str(tmp_path / "clang"), tmp_path)
    with pytest.raises(CorpusError, match="expected a version"):
        build(known, "/bin/false", tmp_path)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.corpus.ready_made.builder_test import FILES, build, make_project
from compiler_opt.corpus.ready_made.manifest import Manifest
tmp = Path({tmp!r})
files = {{**FILES, **{{f"lib/more{{i}}.c": "int x;" for i in range(12)}}}}
projects = {{name: make_project(name, tmp / "cache", files) for name in ("red", "green", "blue")}}
print("ready", flush=True)
build(Manifest(projects, {{"tiny": {{"train": ("red", "green"), "held_out": ("blue",)}}}}), "clang-22", tmp)
"""


@pytest.mark.ci
@pytest.mark.parametrize("signal_number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_a_build_that_is_killed_can_be_repeated(signal_number: int, tmp_path: Path, cache: Path) -> None:
    root = str(Path(__file__).parents[3])
    code = KILLED.format(root=root, tmp=str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    unfinished = tmp_path / "corpora" / FOLDER_NAME
    while not list(unfinished.glob("*/objects/lib/*.o")):
        time.sleep(0.02)
    os.kill(child.pid, signal_number)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert not list((tmp_path / "corpora").glob("*/corpus_description.json"))
    compiled = {path: path.stat() for path in unfinished.glob("*/objects/lib/*.o")}
    assert len(compiled) < 3 * 14
    files = {**FILES, **{f"lib/more{i}.c": "int x;" for i in range(12)}}
    projects = {name: make_project(name, cache, files) for name in ("red", "green", "blue")}
    known = Manifest(projects, {"tiny": {"train": ("red", "green"), "held_out": ("blue",)}})
    first: dict[str, int] = {}
    corpora = build(
        known, "clang-22", tmp_path, progress=lambda name, done, total: total and first.setdefault(name, done)
    )
    # Nothing that was compiled is compiled again.
    assert sum(first.values()) == len(compiled)
    assert len(Corpus.load(corpora["train"]).modules) == 2 * 14
    assert sorted(path.name for path in (tmp_path / "corpora").iterdir()) == ["held_out", "train"]
