"""Blocks made of few numbers."""

from compiler_opt.cost_models.throughput.blocks import Block

NOP = b"\x90"


def block(
    function: str, block_id: int, count: float, frequency: float = 1.0, misses: float = 0.0, code: bytes = NOP
) -> Block:
    """A block with a number of misses of data per execution."""
    return Block(code, "m", function, block_id, frequency, count, annotations=(0.0, misses, 0.0, 0.0))
