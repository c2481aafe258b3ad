"""Makes the ready-made corpora: fetches open-source C and C++ projects, compiles them, extracts their modules.

    python -m compiler_opt.tools.fetch_corpus --set=small --output_dir=$CORPUS

makes `$CORPUS/train` and `$CORPUS/held_out`; the larger sets have `$CORPUS/validation`, too. Archives come through pip,
pinned by hash, and are kept: a second run, also with another compiler, works without a network. After an interruption
the same command goes on where it was.

    python -m compiler_opt.tools.fetch_corpus --list

shows the sets, and each project's licence. docs/ready_made.md has the same, and how to choose.
"""

import threading
from pathlib import Path
from typing import NoReturn

import tqdm
from absl import flags

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.ready_made import builder, manifest, tables
from compiler_opt.corpus.ready_made.cross_compiling import Target
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import find_clang
from compiler_opt.tools import entry_point

_SET = flags.DEFINE_string("set", "small", "Which ready-made set to make; --list shows them.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Gets one corpus folder for each split of the set.")
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest one that is found.")
_LEVEL = flags.DEFINE_enum(
    "optimization_level",
    "Oz",
    builder.LEVELS,
    "What modules are compiled at: O2 or O3 to work on speed.",
)
_TARGET_TRIPLE = flags.DEFINE_string(
    "target_triple",
    None,
    "What to compile for, e.g. aarch64-linux-gnu, whose headers must be there; by default the compiler's own target.",
)
_SYSROOT = flags.DEFINE_string("sysroot", None, "The folder in which the compiler looks for headers instead of /.")
_CACHE_DIR = flags.DEFINE_string("cache_dir", None, "Where archives are kept; by default the user's cache folder.")
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Compilers running at a time; by default one per CPU.")
_LIST = flags.DEFINE_bool("list", False, "Only list the sets, and the projects with their sizes and licences.")


@entry_point.command
def entry() -> int:
    if _LIST.value:
        known = manifest.load()
        print(f"{tables.sets_table(known)}\n\n{tables.projects_table(known)}")
        return 0
    if not _OUTPUT_DIR.value:
        raise ConfigError("expected --output_dir, the folder that gets the corpora; see --help")
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    clang = find_clang(_CLANG_PATH.value)
    target = Target(_TARGET_TRIPLE.value, Path(_SYSROOT.value) if _SYSROOT.value else None)
    with tqdm.tqdm(unit="module", dynamic_ncols=True) as bar:
        shown = _Bar(bar)
        corpora = builder.build(
            _SET.value,
            Path(_OUTPUT_DIR.value),
            clang,
            cache_dir=Path(_CACHE_DIR.value) if _CACHE_DIR.value else None,
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
        print(f"left out, since they are not for {architecture}: {', '.join(left_out)}")
    return 0


def _left_out(set_name: str, architecture: str) -> list[str]:
    """Projects of a set that an architecture cannot have."""
    known = manifest.load()
    there = known.for_architecture(architecture).projects
    return [project.name for split in known.split(set_name).values() for project in split if project.name not in there]


class _Bar:
    """Shows the modules of all projects that are being made or done."""

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
            # Threads may overtake one another.
            self._done[project] = max(done, self._done.get(project, 0))
            self._total[project] = total or self._total.get(project, 0)
            self._bar.set_description(project if total else f"{project}: fetching", refresh=False)
            self._bar.total = sum(self._total.values())
            self._bar.n = sum(self._done.values())
            self._bar.refresh()


def _summary(split: str, path: Path) -> str:
    """A table of the projects of one corpus."""
    known = manifest.load().projects
    corpus = Corpus.load(path)
    lines = [f"{split}: {path}"]
    for name, modules in corpus.projects().items():
        num_bytes = sum(module.bitcode_path.stat().st_size for module in modules)
        lines.append(f"  {name:16} {known[name].language:4} {len(modules):5} modules {num_bytes / 1e6:8.1f} MB bitcode")
    lines.append(f"  {'together':16} {'':4} {len(corpus.modules):5} modules")
    return "\n".join(lines)


if __name__ == "__main__":
    entry()
