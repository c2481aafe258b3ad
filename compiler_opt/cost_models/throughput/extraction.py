"""Makes a data set of labelled blocks from corpora: compiles, reads, removes duplicates, labels.

    FOLDER/parts/*.npz     the blocks of each module, kept for a later run
    FOLDER/labels/*.npz    labels of each batch, the same
    FOLDER/SPLIT.npz       the data set of each corpus: `blocks.save_blocks`

Blocks are equal if their bytes are, with relocations and the targets of relative branches zero. Each is in the data set
once: in the first split of `PRECEDENCE` that has it, under the first module there that has it. So no block that is
trained on occurs in validation or held-out projects.
"""

import concurrent.futures
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import compile_object
from compiler_opt.cost_models.throughput.address_map import FLAGS, read_object
from compiler_opt.cost_models.throughput.blocks import MAX_FILE_BYTES, Block, from_arrays, to_arrays
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.mca import BATCH_BLOCKS, Labeller
from compiler_opt.errors import CompileError, CorpusError, ProtocolError
from compiler_opt.kept_results import kept, key_of
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain

PRECEDENCE = ("held_out", "validation", "train")
"""Splits; a block that several have is in the first of them only."""

MAX_BLOCK_BYTES = 1 << 12
"""Longer blocks are left out: they are few, and a batch would be of blocks of unequal size."""

_PARTS, _LABELS = "parts", "labels"
_VERSION = "1"
"""Renew when parts have other contents."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The blocks of a module.

    Attributes:
      blocks: distinct ones, canonical.
      num_blocks: all that were read.
      num_refused: of those, that are no sequence of whole instructions or are too long.
      failure: why there are none.
    """

    blocks: tuple[Block, ...] = ()
    num_blocks: int = 0
    num_refused: int = 0
    failure: str | None = None


@dataclasses.dataclass
class Counts:
    """What became of the blocks of a split.

    Attributes:
      modules: compiled.
      failures: reasons of modules that could not be compiled or read.
      blocks: all that were read.
      refused: of those, that cannot be decoded or are too long.
      unique: that are in no split before this one, by their bytes.
      elsewhere: distinct ones that are in a split before this one.
      unlabelled: of the unique ones, that llvm-mca refuses; they are left out.
    """

    modules: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    blocks: int = 0
    refused: int = 0
    unique: int = 0
    elsewhere: int = 0
    unlabelled: int = 0


class BlockExtractor:
    """Extracts blocks into a folder, and labels them; see the module."""

    def __init__(self, folder: Path, labeller: Labeller, num_workers: int = 1, timeout_s: float = 300.0):
        """Starts nothing; the folder must belong to this process alone.

        Args:
          folder: for results and what is kept.
          labeller: llvm-mca.
          num_workers: compilers at a time.
          timeout_s: for each module.
        """
        self._folder = folder
        self._labeller = labeller
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._local = threading.local()

    def parts(self, modules: Sequence[Module], progress: Callable[[int], object] = lambda _: None) -> list[Part]:
        """The blocks of each module, `[M]`, in order; `progress` is called with 1 for each module."""

        def work(module: Module) -> Part:
            part = self._part(module)
            progress(1)
            return part

        with concurrent.futures.ThreadPoolExecutor(self._num_workers) as pool:
            # Interrupted, `map` drops what has not begun.
            return list(pool.map(work, modules))

    def label(
        self, blocks: Sequence[Block], progress: Callable[[int], object] = lambda _: None
    ) -> tuple[list[Block], int]:
        """The blocks that llvm-mca simulates, with its labels, and the number of the others."""
        source = self._labeller.source
        labelled: list[Block] = []
        for start in range(0, len(blocks), BATCH_BLOCKS):
            batch = blocks[start : start + BATCH_BLOCKS]
            for block, cycles in zip(batch, self._labels([block.code for block in batch]), strict=True):
                if not math.isnan(cycles):
                    labelled.append(dataclasses.replace(block, labels={**block.labels, source: cycles}))
            progress(len(batch))
        return labelled, len(blocks) - len(labelled)

    def _part(self, module: Module) -> Part:
        toolchain = self._labeller.toolchain
        try:
            about = (_VERSION, toolchain.identity(), FLAGS, module.options())
            path = self._folder / _PARTS / f"{key_of(module.content_digest(), repr(about))}.npz"
            return kept(
                path,
                _load_part,
                _pack_part,
                lambda: self._distinct(compile_module(module, toolchain, self._timeout_s)),
            )
        except (CompileError, CorpusError, ProtocolError) as error:
            return Part(failure=str(error))

    def _distinct(self, blocks: Sequence[Block]) -> Part:
        if not hasattr(self._local, "decoder"):
            self._local.decoder = Decoder()
        decoder: Decoder = self._local.decoder
        found: dict[bytes, Block] = {}
        num_refused = 0
        for block in blocks:
            code = decoder.canonical(block.code) if len(block.code) <= MAX_BLOCK_BYTES else None
            if code is None:
                num_refused += 1
            else:
                _add(found, dataclasses.replace(block, code=code))
        return Part(tuple(found.values()), len(blocks), num_refused)

    def _labels(self, codes: Sequence[bytes]) -> list[float]:
        def load(path: Path) -> list[float]:
            cycles = load_arrays(path, MAX_FILE_BYTES)["cycles"]
            if cycles.shape != (len(codes),) or cycles.dtype.kind != "f":
                raise ValueError(f"expected {len(codes)} real numbers")
            return [float(value) for value in cycles]

        def make() -> list[float]:
            return [math.nan if cycles is None else cycles for cycles in self._labeller.label(codes)]

        sized = (len(code).to_bytes(4, "little") + code for code in codes)
        path = self._folder / _LABELS / f"{key_of(f'{_VERSION} {self._labeller.source} ', *sized)}.npz"
        return kept(path, load, lambda labels: pack_arrays({"cycles": np.array(labels)}), make)


def compile_module(module: Module, toolchain: Toolchain, timeout_s: float = 300.0) -> list[Block]:
    """Compiles a module as its corpus says and returns all of its blocks as they are in the object.

    Raises:
      CompileError, CorpusError: the compiler fails.
      ProtocolError: the object is not one for x86-64.
      ToolchainError: llvm-readobj is missing.
    """
    with scratch_directory() as scratch:
        path = scratch / "module.o"
        compile_object(module, toolchain, path, FLAGS, timeout_s=timeout_s)
        return read_object(path, toolchain, module.name)


def split_blocks(parts: Mapping[str, Sequence[Part]]) -> tuple[dict[str, list[Block]], dict[str, Counts]]:
    """Distinct blocks of each split, in no split but one, and what was counted; see the module."""
    seen: set[bytes] = set()
    blocks: dict[str, list[Block]] = {}
    counts: dict[str, Counts] = {}
    for split in sorted(parts, key=_precedence):
        found: dict[bytes, Block] = {}
        count = counts[split] = Counts()
        for part in parts[split]:
            count.modules += part.failure is None
            count.failures += [] if part.failure is None else [part.failure]
            count.blocks += part.num_blocks
            count.refused += part.num_refused
            for block in part.blocks:
                _add(found, block)
        blocks[split] = [block for code, block in found.items() if code not in seen]
        count.unique = len(blocks[split])
        count.elsewhere = len(found) - count.unique
        seen.update(found)
    return {split: blocks[split] for split in parts}, {split: counts[split] for split in parts}


def sample(blocks: Sequence[Block], max_blocks: int | None, seed: int = 0) -> list[Block]:
    """At most so many of the blocks, drawn at random, in their order."""
    if max_blocks is None or len(blocks) <= max_blocks:
        return list(blocks)
    chosen = np.random.default_rng(seed).choice(len(blocks), max_blocks, replace=False)
    return [blocks[number] for number in np.sort(chosen).tolist()]


def projects_of(blocks: Iterable[Block]) -> list[str]:
    """The project of each block: what its module's name begins with."""
    return [_project(block.module) for block in blocks]


@functools.lru_cache(maxsize=1 << 14)
def _project(module: str) -> str:
    return module.split("/", 1)[0]


def _load_part(path: Path) -> Part:
    arrays = load_arrays(path, MAX_FILE_BYTES)
    num_blocks, num_refused = arrays["counts"].tolist()
    return Part(tuple(from_arrays(arrays)), int(num_blocks), int(num_refused))


def _pack_part(part: Part) -> bytes:
    return pack_arrays({**to_arrays(part.blocks), "counts": np.array([part.num_blocks, part.num_refused])})


def _add(found: dict[bytes, Block], block: Block) -> None:
    known = found.setdefault(block.code, block)
    if known is not block:
        found[block.code] = dataclasses.replace(known, num_copies=known.num_copies + block.num_copies)


def _precedence(split: str) -> tuple[int, str]:
    return (PRECEDENCE.index(split) if split in PRECEDENCE else len(PRECEDENCE), split)
