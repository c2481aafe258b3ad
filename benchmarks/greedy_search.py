"""What a plain greedy search over inlining decisions finds: the yardstick of `compiler_opt.search`.

Walks the decisions of each module in order, flips one, compiles the module, and keeps the flip if the object's text
shrank. Modules take turns, so that after any number of compiles all of them have had as many.

    python -m benchmarks.greedy_search --data_path=CORPUS --max_compiles=500

prints objects' text and linked text after every `--every` compiles.
"""

from collections.abc import Mapping
from pathlib import Path

from absl import flags

from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.llvm.object_file import linked_parts
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.decisions import Site
from compiler_opt.problems.inlining import PROBLEM
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.tools import entry_point, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()
_MAX_COMPILES = flags.DEFINE_integer("max_compiles", None, "Stop after this many compiles; by default at the end.")
_EVERY = flags.DEFINE_integer("every", 100, "Compiles between two lines of output.")


class _Walk:
    """The greedy walk over one module's decisions."""

    def __init__(self, base: Compiled):
        self.kept: dict[Site, int] = {}
        self.best = base
        self._position = 0
        self._flip: tuple[Site, int] | None = None

    def next(self) -> dict[Site, int] | None:
        """The decisions to try; None at the end."""
        if self._position >= len(self.best.sites):
            return None
        self._flip = self.best.sites[self._position], 1 - self.best.advice[self._position]
        self._position += 1
        return {**self.kept, self._flip[0]: self._flip[1]}

    def take(self, compiled: Compiled | str) -> None:
        if isinstance(compiled, Compiled) and compiled.sizes.text_bytes < self.best.sizes.text_bytes:
            assert self._flip is not None
            self.kept[self._flip[0]] = self._flip[1]
            self.best = compiled


@entry_point.command
def entry() -> None:
    corpus = _CORPUS.filtered(_CORPUS.load())
    toolchain = probe(_CLANG_PATH.value)
    lld = toolchain.tool("ld.lld")
    with WorkerPool(toolchain, PROBLEM, _NUM_WORKERS.value) as pool, scratch_directory() as scratch:
        compiler = PoolCompiler(pool, corpus.modules, DefaultPolicy(PROBLEM))

        def linked(decisions: Mapping[int, Mapping[Site, int]]) -> int:
            paths = {module: scratch / f"{module}.o" for module in decisions}
            compiler.compile(decisions, paths.__getitem__)
            return linked_parts(lld, [Path(path) for path in paths.values()], scratch=scratch).total

        base = compiler.compile({module: {} for module in range(len(corpus.modules))})
        walks = {module: _Walk(each) for module, each in base.items() if isinstance(each, Compiled)}
        base_bytes = sum(walk.best.sizes.text_bytes for walk in walks.values())
        base_linked = linked({module: {} for module in walks})
        count, printed = len(walks), 0
        print(f"{len(walks)} modules, {sum(len(walk.best.sites) for walk in walks.values())} decisions")
        print("compiles  flips  objects    linked")

        def show() -> None:
            object_bytes = sum(walk.best.sizes.text_bytes for walk in walks.values())
            now = linked({module: walk.kept for module, walk in walks.items()})
            flips = sum(len(walk.kept) for walk in walks.values())
            print(
                f"{count:8d} {flips:6d} {object_bytes / base_bytes - 1:+8.2%} {now / base_linked - 1:+9.2%}", flush=True
            )

        while _MAX_COMPILES.value is None or count < _MAX_COMPILES.value:
            requests = {module: tried for module, walk in walks.items() if (tried := walk.next()) is not None}
            if not requests:
                break
            for module, compiled in compiler.compile(requests).items():
                walks[module].take(compiled)
            count += len(requests)
            if count >= printed + _EVERY.value:
                printed = count
                show()
        show()


if __name__ == "__main__":
    entry()
