"""IR2Vec embeddings of caller and callee, which LLVM 22 and later can add to the inliner's features.

The user provides a vocabulary in LLVM's format (`llvm/include/llvm/Analysis/IR2Vec.h`): a JSON file with a vector for
each part of the IR, all of the same length D:

    {"Opcodes": {"Add": [0.1, ...], ...}, "Types": {"IntegerTy": [...], ...}, "Arguments": {"Constant": [...], ...}}

LLVM computes a vector for each function and sends two tensors of D floats, `callee_embedding` and `caller_embedding`.
Here each number is a feature of its own, named `callee_embedding_0` and so on; the bytes are the same.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.files import parse_json, printable, read_regular, shown
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.training_log import Header
from compiler_opt.tensor_spec import TensorSpec

OPTION = "-ml-inliner-ir2vec-vocab-file"
"""LLVM's option that adds embeddings to the inliner's features."""

SETTING = "inlining.ir2vec_vocabulary"
"""The vocabulary's name in gin."""

IDENTITY = "ir2vec_vocabulary"
"""The key of the vocabulary's SHA-256 in what traces and policies record about their compiler."""

TENSORS = ("callee_embedding", "caller_embedding")
MAX_BYTES = 1 << 24
MAX_DIMENSIONS = 512

_PATH_OPTION = "-ir2vec-vocab-path"  # has the vocabulary read; `OPTION` only enables embeddings
_SECTIONS = ("Opcodes", "Types", "Arguments")
_LARGEST = 1e6
"""Embeddings are sums over functions, in single precision."""

_COMPONENT = re.compile(rf"({'|'.join(TENSORS)})_(\d+)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Ir2VecVocabulary:
    """A checked vocabulary: its absolute path, the hexadecimal SHA-256 of its file, and the length D of its vectors."""

    path: Path
    sha256: str
    dimensions: int

    def options(self) -> list[str]:
        """Clang arguments for embeddings by this vocabulary."""
        return mllvm([f"{OPTION}={self.path}", f"{_PATH_OPTION}={self.path}"])


def read_vocabulary(path: Path) -> Ir2VecVocabulary:
    """Reads and checks a vocabulary; raises ConfigError if LLVM would not accept it."""
    where = f"{SETTING}: {printable(path)}"
    try:
        content = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot be read: {getattr(error, 'strerror', error)}; give another file") from None
    try:
        dimensions = _dimensions(parse_json(content))
    except ValueError as error:
        raise ConfigError(
            f"{where}: expected an IR2Vec vocabulary (JSON with {', '.join(_SECTIONS)}, each of names with vectors of "
            f"one length); {printable(str(error)[:200])}; give one that LLVM reads"
        ) from None
    return Ir2VecVocabulary(path.absolute(), hashlib.sha256(content).hexdigest(), dimensions)


def _dimensions(value: Any) -> int:
    """The length of the vectors; raises ValueError if the vocabulary is malformed."""
    if not isinstance(value, dict):
        raise ValueError(f"found {type(value).__name__}")
    lengths: set[int] = set()
    for section in _SECTIONS:
        entries = value.get(section)
        if not isinstance(entries, dict) or not entries:
            raise ValueError(f"found {section} to be missing or empty")
        for name, vector in entries.items():
            if not isinstance(vector, list) or not all(map(_is_usable, vector)):
                raise ValueError(f"found {section} {shown(name)} not to be numbers of at most {_LARGEST:.0e}")
            lengths.add(len(vector))
    if len(lengths) > 1:
        raise ValueError(f"found vectors of {' and '.join(map(str, sorted(lengths)[:2]))} numbers")
    if not 1 <= min(lengths) <= MAX_DIMENSIONS:
        raise ValueError(f"found vectors of {min(lengths)} numbers, where 1 to {MAX_DIMENSIONS} are possible")
    return min(lengths)


def _is_usable(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) <= _LARGEST


def components(names: Iterable[str]) -> tuple[str, ...]:
    """The features that are numbers of embeddings."""
    return tuple(name for name in names if _COMPONENT.fullmatch(name))


def tensor_and_place(name: str) -> tuple[str, int] | None:
    """The embedding tensor and index of a feature; None if it is not a number of an embedding."""
    match = _COMPONENT.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def flattened(header: Header) -> Header:
    """The header with each number of an embedding as a feature; it describes the same bytes."""
    features: list[TensorSpec] = []
    for spec in header.features:
        if spec.name in TENSORS:
            features += (TensorSpec(f"{spec.name}_{i}", spec.dtype, ()) for i in range(spec.num_elements))
        else:
            features.append(spec)
    return dataclasses.replace(header, features=tuple(features))


def check_same(made_by: Any, given: Ir2VecVocabulary | None, what: str) -> None:
    """Checks that a policy or trace (`what`) is used with the vocabulary that it was made with.

    `made_by` is the compiler that it records, see `Toolchain.identity`. Raises PolicyError if the vocabularies differ.
    """
    recorded = made_by.get(IDENTITY) if isinstance(made_by, Mapping) else None
    if recorded == (given.sha256 if given is not None else None):
        return
    found = f"{SETTING} = {printable(given.path)!r} (SHA-256 {given.sha256[:12]}...)" if given is not None else "none"
    if recorded is None:
        raise PolicyError(f"{what}: was made without IR2Vec embeddings, found {found}; leave {SETTING} out")
    raise PolicyError(
        f"{what}: was made with the IR2Vec vocabulary of SHA-256 {printable(str(recorded)[:12])}..., found {found}; "
        f"give the same file as {SETTING} in gin"
    )
