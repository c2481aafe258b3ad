"""The vocabulary: quantiles of each feature over a trace. Networks observe ranks among them instead of values.

On disk, a folder with one text file per feature, `FEATURE.buckets`: one number per line, ascending, with repetitions (a
value of 30% of the decisions is on 30% of the lines). The rank of a value is the share of lines up to it.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.files import read_regular, replaced_folder, write_atomically

SUFFIX = ".buckets"

_MAX_FILE_BYTES = 1 << 24
_REMAKE = "make the vocabulary again with compiler_opt generate_vocab"


def save_vocabulary(directory: Path, quantiles: Mapping[str, np.ndarray]) -> None:
    """Writes one file per feature. A new folder appears when complete; other files of an existing folder stay.

    Raises:
      OutputError: a file cannot be written.
      PolicyError: a feature's quantiles are not ascending finite numbers.
    """
    for feature, values in quantiles.items():
        _check(_path(directory, feature), values.tolist())
    is_new = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    try:
        with replaced_folder(directory) if is_new else contextlib.nullcontext(directory) as folder:
            for feature, values in quantiles.items():
                # repr gives the shortest text that reads back as the same number.
                text = "".join(f"{value!r}\n" for value in values.tolist())
                write_atomically(_path(folder, feature), text.encode())
    except OSError as error:
        raise OutputError(f"{directory}: cannot be written: {error.strerror}; choose another folder") from error


def listed_features(directory: Path) -> tuple[str, ...]:
    """The features of which a folder has files, sorted; none if there is no such folder."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in directory.glob(f"*{SUFFIX}")))


def load_vocabulary(directory: Path, features: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads the quantiles of the given features, in their order.

    Returns:
      by feature `[Q]` float64, ascending.

    Raises:
      PolicyError: a feature's file is missing, or is not a list of ascending numbers; the message names it.
    """
    if not directory.is_dir():
        raise PolicyError(f"{directory}: expected a vocabulary (a folder of *{SUFFIX} files), found none; {_REMAKE}")
    missing = [feature for feature in features if not _path(directory, feature).is_file()]
    if missing:
        raise PolicyError(f"{directory}: the vocabulary lacks the features {', '.join(missing)}; {_REMAKE}")
    return {feature: _read(_path(directory, feature)) for feature in features}


def _path(directory: Path, feature: str) -> Path:
    return directory / f"{feature}{SUFFIX}"


def _read(path: Path) -> np.ndarray:
    try:
        data = read_regular(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); {_REMAKE}") from None
    values: list[float] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values.append(float(line))
        except ValueError:
            raise PolicyError(f"{path}:{number}: expected a number, found {line[:40]!r}; {_REMAKE}") from None
    _check(path, values)
    return np.array(values, np.float64)


def _check(path: Path, values: Sequence[float]) -> None:
    if not values:
        raise PolicyError(f"{path}: expected at least one number, found none; {_REMAKE}")
    for number, value in enumerate(values, 1):
        if not math.isfinite(value):
            raise PolicyError(f"{path}: expected finite numbers, found {value} as number {number}; {_REMAKE}")
        if number > 1 and value < values[number - 2]:
            raise PolicyError(
                f"{path}: expected ascending numbers, found {value} after {values[number - 2]} as number {number}; "
                f"{_REMAKE}"
            )
