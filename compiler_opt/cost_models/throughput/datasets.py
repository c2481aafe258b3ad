"""Blocks with their instructions and labels, read from the files of a data set."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler_opt.cost_models.throughput.blocks import Block, load_blocks
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from compiler_opt.errors import ConfigError, CorpusError


@dataclasses.dataclass(frozen=True)
class LabelledBlocks:
    """`N` blocks.

    Attributes:
      blocks: the blocks.
      instructions: of each block.
      cycles: `[N]`, the labels.
      source: of the labels.
      num_left_out: blocks of the file without such a label, or that cannot be decoded.
    """

    blocks: Sequence[Block]
    instructions: Sequence[Sequence[Instruction]]
    cycles: np.ndarray
    source: str
    num_left_out: int

    def first(self, number: int | None) -> "LabelledBlocks":
        """The first blocks."""
        parts = (self.blocks[:number], self.instructions[:number], self.cycles[:number])
        return LabelledBlocks(*parts, self.source, self.num_left_out)


def load_labelled(path: Path, decoder: Decoder, source: str | None = None) -> LabelledBlocks:
    """Reads a file of blocks.

    Args:
      path: the file.
      decoder: decodes them.
      source: which labels; None if the file has those of one source only.

    Raises:
      CorpusError: the file is missing or damaged, or has no block with such a label.
      ConfigError: the file has labels of several sources, or not of this one.
    """
    blocks = load_blocks(path)
    sources = sorted({source for block in blocks for source in block.labels})
    if source is None:
        if len(sources) > 1:
            raise ConfigError(f"{path}: has labels of {', '.join(sources)}; choose one by --label_source")
        if not sources:
            raise CorpusError(f"{path}: no block has a label; extract them again")
        source = sources[0]
    elif source not in sources:
        raise ConfigError(f"{path}: has no labels of {source!r:.80}, but of {', '.join(sources) or 'nothing'}")
    found = [
        (block, decoded, block.labels[source])
        for block in blocks
        if source in block.labels and (decoded := decoder.decode(block.code))
    ]
    if not found:
        raise CorpusError(f"{path}: none of {len(blocks)} blocks can be decoded and has a label; extract them again")
    kept, instructions, cycles = zip(*found, strict=True)
    return LabelledBlocks(kept, instructions, np.array(cycles), source, len(blocks) - len(found))
