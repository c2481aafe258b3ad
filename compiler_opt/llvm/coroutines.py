"""Coroutines, each of which LLVM splits into several functions: `f` into `f`, `f.resume`, `f.destroy`, ...

It splits them when `f` has been inlined into, and before `f` is inlined itself.
"""

_PARTS = (".resume", ".destroy", ".cleanup", ".noalloc")
"""What LLVM appends to the name of a coroutine."""


def coroutine_of(function: str) -> str | None:
    """The coroutine that a function was split from; None if it is no such part."""
    return function.rpartition(".")[0] if function.endswith(_PARTS) else None
