"""A model's folder: `model.json` says what the model is, beside a file of arrays. Both are untrusted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from compiler_opt.errors import PolicyError
from compiler_opt.files import printable

DESCRIPTION = "model.json"
_REMEDY = "train it again with compiler_opt cost_model train"


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Path]:
    """Raises PolicyError, in one line which names the file, for what goes wrong in the block."""
    try:
        yield path
    except FileNotFoundError:
        reason = "no such file; give the folder of a trained model, or"
    except OSError as error:
        reason = f"cannot be read: {error.strerror};"
    except ValueError as error:
        reason = f"damaged: {error};"
    else:
        return
    raise PolicyError(f"{printable(path)}: {reason} {_REMEDY}")
