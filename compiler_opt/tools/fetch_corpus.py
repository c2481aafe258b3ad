"""Makes a ready-made corpus: downloads open-source C and C++ projects, compiles them and extracts their modules.

    compiler_opt fetch_corpus --set=small --output_dir=$CORPUS

makes `$CORPUS/train` and `$CORPUS/held_out`; larger sets also have `$CORPUS/validation`, and the set `test` has
`$CORPUS/test` alone. Archives are downloaded by pip, pinned by hash, and cached: a second run, also with another
compiler, needs no network. After an interruption, the same command continues.

    compiler_opt fetch_corpus --list

lists the sets, and the projects with their licences. docs/ready_made.md explains how to choose.
"""

import threading
from collections.abc import Sequence
from typing import NoReturn

import tqdm
from absl import flags

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.ready_made import builder, manifest
from compiler_opt.corpus.ready_made.cross_compiling import Target
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import find_clang
from compiler_opt.progress_bar import progress_bar
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
    known = manifest.load()
    if _LIST.value:
        print(f"{manifest.sets_table(known)}\n\n{manifest.projects_table(known)}")
        return
    if not _OUTPUT_DIR.value:
        raise ConfigError("expected --output_dir, the folder that gets the corpora; see --help")
    clang = find_clang(_CLANG_PATH.value)
    target = Target(_TARGET_TRIPLE.value, _SYSROOT.value)
    with progress_bar(unit="module") as bar:
        shown = _Bar(bar)
        corpora = builder.build(
            _SET.value,
            _OUTPUT_DIR.value,
            clang,
            cache_dir=_CACHE_DIR.value,
            level=_LEVEL.value,
            target=target,
            num_workers=entry_point.num_workers(_NUM_WORKERS.value),
            progress=shown.show,
            announce=shown.announce,
        )
    for split, path in corpora.items():
        print("\n".join([f"{split}: {path}", *_projects(Corpus.load(path), known).lines()]))
    architecture = target.architecture(clang)
    supported = known.for_architecture(architecture).projects
    names = [project.name for projects in known.split(_SET.value).values() for project in projects]
    if left_out := [name for name in names if name not in supported]:
        print(f"left out, since they do not support {architecture}: {', '.join(left_out)}")


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
        download_mb, disk_mb = plan.download_bytes / 1e6, plan.corpus_bytes / 1e6
        with self._bar.external_write_mode():
            entry_point.say(
                f"{len(plan.projects)} projects with some {plan.num_modules} modules to make: "
                f"{download_mb:.1f} MB to download, {disk_mb:.1f} MB of disk for the corpora"
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


def _projects(corpus: Corpus, known: manifest.Manifest) -> Table:
    def row(name: str, language: str, modules: Sequence[Module]) -> list[str]:
        size_bytes = sum(module.bitcode_path.stat().st_size for module in modules)
        return [name, language, str(len(modules)), f"{size_bytes / 1e6:.1f}"]

    rows = [row(name, known.projects[name].language, modules) for name, modules in corpus.projects().items()]
    head = ["project", "language", "modules", "bitcode, MB"]
    return Table(head, rows, row("together", "", corpus.modules), num_text_columns=2)


if __name__ == "__main__":
    entry()
