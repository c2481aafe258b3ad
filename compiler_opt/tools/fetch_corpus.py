"""Makes a ready-made corpus: downloads open-source C and C++ projects, compiles them and extracts their modules.

    python -m compiler_opt.tools.fetch_corpus --set=small --output_dir=$CORPUS

makes `$CORPUS/train` and `$CORPUS/held_out`; larger sets also have `$CORPUS/validation`. Archives are downloaded by
pip, pinned by hash, and cached: a second run, also with another compiler, needs no network. After an interruption, the
same command continues.

    python -m compiler_opt.tools.fetch_corpus --list

lists the sets, and the projects with their licences. docs/ready_made.md explains how to choose.
"""

import threading
from pathlib import Path
from typing import NoReturn

import tqdm
from absl import flags

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.ready_made import builder, manifest
from compiler_opt.corpus.ready_made.cross_compiling import Target
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import find_clang
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags

_SET = flags.DEFINE_string("set", "small", "The ready-made set to make; --list shows them.")
_OUTPUT_DIR = shared_flags.path("output_dir", "Folder for the corpora, one for each split of the set.")
_CLANG_PATH = shared_flags.clang_path()
_LEVEL = flags.DEFINE_enum(
    "optimization_level",
    "Oz",
    builder.LEVELS,
    "Optimisation level of the modules; O2 or O3 for work on speed.",
)
_TARGET_TRIPLE = flags.DEFINE_string(
    "target_triple",
    None,
    "Target to compile for, e.g. aarch64-linux-gnu, whose headers must be installed; by default the compiler's own.",
)
_SYSROOT = shared_flags.path("sysroot", "The folder where the compiler looks for headers instead of /.")
_CACHE_DIR = shared_flags.path("cache_dir", "Folder for downloads; by default the user's cache folder.")
_NUM_WORKERS = shared_flags.num_workers()
_LIST = flags.DEFINE_bool("list", False, "Only list the sets, and the projects with their sizes and licences.")


@entry_point.command
def entry() -> None:
    if _LIST.value:
        known = manifest.load()
        print(f"{manifest.sets_table(known)}\n\n{manifest.projects_table(known)}")
        return
    if not _OUTPUT_DIR.value:
        raise ConfigError("expected --output_dir, the folder that gets the corpora; see --help")
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    clang = find_clang(_CLANG_PATH.value)
    target = Target(_TARGET_TRIPLE.value, _SYSROOT.value)
    with tqdm.tqdm(unit="module", dynamic_ncols=True) as bar:
        shown = _Bar(bar)
        corpora = builder.build(
            _SET.value,
            _OUTPUT_DIR.value,
            clang,
            cache_dir=_CACHE_DIR.value,
            level=_LEVEL.value,
            target=target,
            num_workers=num_workers,
            progress=shown.show,
            announce=shown.announce,
        )
    for split, path in corpora.items():
        print(_summary(split, path))
    architecture = target.architecture(clang)
    if left_out := _left_out(_SET.value, architecture):
        print(f"left out, since they do not support {architecture}: {', '.join(left_out)}")


def _left_out(set_name: str, architecture: str) -> list[str]:
    """Names of the projects of a set that do not support an architecture."""
    known = manifest.load()
    there = known.for_architecture(architecture).projects
    return [project.name for split in known.split(set_name).values() for project in split if project.name not in there]


class _Bar:
    """A progress bar over the modules of all projects."""

    def __init__(self, bar: "tqdm.tqdm[NoReturn]") -> None:
        self._bar = bar
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def announce(self, plan: builder.Plan) -> None:
        if not plan.projects:
            return
        self._bar.write(
            f"{len(plan.projects)} projects with some {plan.num_modules} modules to make: "
            f"{plan.download_bytes / 1e6:.1f} MB to download, {plan.corpus_bytes / 1e6:.1f} MB of disk for the corpora"
        )
        with self._lock:
            self._total = {project.name: project.measured.modules for project in plan.projects}

    def show(self, project: str, done: int, total: int) -> None:
        with self._lock:
            # Calls of several threads may come out of order.
            self._done[project] = max(done, self._done.get(project, 0))
            self._total[project] = total or self._total.get(project, 0)
            self._bar.set_description(project if total else f"{project}: fetching", refresh=False)
            self._bar.total = sum(self._total.values())
            self._bar.n = sum(self._done.values())
            self._bar.refresh()


def _summary(split: str, path: Path) -> str:
    """A table of the projects of a corpus."""
    known = manifest.load().projects
    corpus = Corpus.load(path)
    sizes = {
        name: sum(module.bitcode_path.stat().st_size for module in modules)
        for name, modules in corpus.projects().items()
    }
    rows = [
        [name, known[name].language, str(len(modules)), f"{sizes[name] / 1e6:.1f}"]
        for name, modules in corpus.projects().items()
    ]
    total = ["together", "", str(len(corpus.modules)), f"{sum(sizes.values()) / 1e6:.1f}"]
    table = Table(["project", "language", "modules", "bitcode, MB"], rows, total, num_text_columns=2)
    return "\n".join([f"{split}: {path}", *table.lines()])


if __name__ == "__main__":
    entry()
