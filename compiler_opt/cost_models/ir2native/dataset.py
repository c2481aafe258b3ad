"""Features and sizes of the functions of a corpus, kept in a file for each module, so that collecting can be resumed.

A file is `DIGEST.npz`, where the digest is of the module's content, the compiler and the version of the features. Its
arrays (F functions, K features that are not zero, D feature names, E symbols):

    symbols   [..] uint8    names of the functions, separated by NUL
    columns   [..] uint8    names of the features, separated by NUL
    rows      [K]  int32    function of each value
    features  [K]  int32    feature of each value
    values    [K]  float32
    bytes     [F]  int64    size of each function in the object; -1 for one that is not in it
    total     [1]  int64    bytes of all functions of the object
"""

import concurrent.futures
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.ir2native.functions import VERSION, FunctionSizes, compile_functions
from compiler_opt.errors import CompileError, CorpusError, ProtocolError
from compiler_opt.kept_results import kept, key_of
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.progress_bar import progress_bar

MAX_FILE_BYTES = 1 << 30
"""Of a module's file, and of its contents."""
_TIMEOUT_S = 300.0

ABSENT = -1
"""The size of a function that is not in the object."""

_KINDS = {
    "symbols": np.uint8,
    "columns": np.uint8,
    "rows": np.int32,
    "features": np.int32,
    "values": np.float32,
    "bytes": np.int64,
    "total": np.int64,
}


@dataclasses.dataclass(frozen=True)
class ModuleFunctions:
    """The functions of one module right after inlining.

    Attributes:
      module: its name.
      project: its project.
      symbols: the F functions.
      columns: names of features.
      rows, features, values: `[K]`, the features that are not zero.
      bytes: `[F]` int64; `ABSENT` for functions that vanish after the cut, or whose symbol is private.
      total: bytes of all functions of the object.
    """

    module: str
    project: str
    symbols: tuple[str, ...]
    columns: tuple[str, ...]
    rows: np.ndarray
    features: np.ndarray
    values: np.ndarray
    bytes: np.ndarray
    total: int

    @classmethod
    def make(
        cls, module: Module, features: Mapping[str, Mapping[str, float]], sizes: FunctionSizes
    ) -> "ModuleFunctions":
        """Joins features and sizes by symbol."""
        columns = sorted({name for each in features.values() for name in each})
        numbers = {name: number for number, name in enumerate(columns)}
        rows = [row for row, each in enumerate(features.values()) for _ in each]
        return cls(
            module.name,
            module.project,
            tuple(features),
            tuple(columns),
            np.array(rows, np.int32),
            np.array([numbers[name] for each in features.values() for name in each], np.int32),
            np.array([value for each in features.values() for value in each.values()], np.float32),
            np.array([sizes.by_symbol.get(symbol, ABSENT) for symbol in features], np.int64),
            sizes.total,
        )

    def matrix(self, columns: Mapping[str, int]) -> np.ndarray:
        """`[F, D]` float32: the features in the places that `columns` gives; others are left out."""
        x = np.zeros((len(self.symbols), len(columns)), np.float32)
        places = np.array([columns.get(name, -1) for name in self.columns], np.int64)
        place = places[self.features] if len(self.features) else np.zeros(0, np.int64)
        x[self.rows[place >= 0], place[place >= 0]] = self.values[place >= 0]
        return x

    def arrays(self) -> dict[str, np.ndarray]:
        """What the module's file has."""
        return {
            "symbols": _packed(self.symbols),
            "columns": _packed(self.columns),
            "rows": self.rows,
            "features": self.features,
            "values": self.values,
            "bytes": self.bytes,
            "total": np.array([self.total], np.int64),
        }

    @classmethod
    def load(cls, path: Path, module: Module) -> "ModuleFunctions":
        """Reads a module's file; raises OSError if there is none, ValueError if it is damaged."""
        arrays = load_arrays(path, MAX_FILE_BYTES)
        for name, kind in _KINDS.items():
            if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype != kind:
                raise ValueError(f"expected {name} as one row of {np.dtype(kind)}")
        symbols, columns = _unpacked(arrays["symbols"]), _unpacked(arrays["columns"])
        rows, features, values = (arrays[name] for name in ("rows", "features", "values"))
        if not len(rows) == len(features) == len(values) or len(arrays["bytes"]) != len(symbols):
            raise ValueError("its arrays have different lengths")
        for indices, count in ((rows, len(symbols)), (features, len(columns))):
            if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < count:
                raise ValueError("a value is out of place")
        if len(arrays["total"]) != 1 or not np.isfinite(values).all():
            raise ValueError("its numbers are not such as were written")
        total = int(arrays["total"][0])
        return cls(
            module.name,
            module.project,
            symbols,
            columns,
            rows,
            features,
            values,
            arrays["bytes"],
            total,
        )


class Dataset:
    """The functions of the modules of a corpus."""

    def __init__(self, modules: Sequence[ModuleFunctions]):
        self.modules = list(modules)

    def columns(self, min_functions: int = 1) -> list[str]:
        """Names of the features that are not zero in so many functions at least, in order."""
        counts: Counter[str] = Counter()
        for module in self.modules:
            used = np.bincount(module.features, minlength=len(module.columns))
            counts.update(dict(zip(module.columns, used.tolist(), strict=True)))
        return sorted(name for name, count in counts.items() if count >= min_functions)

    def matrix(self, columns: Sequence[str]) -> np.ndarray:
        """`[F, D]` float32 of all functions."""
        places = {name: number for number, name in enumerate(columns)}
        parts = [module.matrix(places) for module in self.modules]
        return np.concatenate(parts) if parts else np.zeros((0, len(columns)), np.float32)

    def bytes(self) -> np.ndarray:
        """`[F]` sizes; `ABSENT` for functions that are not in the objects."""
        return np.concatenate([module.bytes for module in self.modules]) if self.modules else np.zeros(0, np.int64)

    def symbols(self) -> list[str]:
        """`[F]` names of the functions."""
        return [symbol for module in self.modules for symbol in module.symbols]

    def symbol_hashes(self) -> np.ndarray:
        """`[F]` uint64: equal for equal names of functions."""
        digests = (
            hashlib.blake2b(symbol.encode("utf-8", "surrogateescape"), digest_size=8) for symbol in self.symbols()
        )
        return np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8").astype(np.uint64)

    def totals(self) -> np.ndarray:
        """`[M]` bytes of all functions of each module's object."""
        return np.array([module.total for module in self.modules], np.float64)

    def module_of_function(self) -> np.ndarray:
        """`[F]` the module of each function."""
        return np.repeat(np.arange(len(self.modules)), [len(module.symbols) for module in self.modules])

    def projects(self) -> np.ndarray:
        """`[M]` the project of each module."""
        return np.array([module.project for module in self.modules], np.str_)


def read_corpus(
    corpus: Corpus, toolchain: Toolchain, folder: Path, description: str = "reading", *, num_workers: int = 1
) -> tuple[Dataset, list[str]]:
    """The functions of a corpus's modules, and why modules failed: each is read from its file in `folder` or compiled.

    Shows a progress bar with a description. A damaged file is set aside, and made again.

    Raises:
      CorpusError: most modules fail; the message has the first reason.
      OutputError: a file cannot be written.
      ToolchainError: a module is to be compiled, and there is no inliner plugin; the message says what to install.
    """
    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        read = pool.map(lambda module: _read(module, toolchain, folder), corpus.modules)
        found = list(progress_bar(read, description, len(corpus.modules), unit="module"))
    failures = [each for each in found if isinstance(each, str)]
    if len(failures) * 2 > len(found):
        raise CorpusError(f"{corpus.root}: {len(failures)} of {len(found)} modules failed; the first: {failures[0]}")
    return Dataset([each for each in found if not isinstance(each, str)]), failures


def _read(module: Module, toolchain: Toolchain, folder: Path) -> ModuleFunctions | str:
    """A module's functions, or why there are none, in one line."""
    about = json.dumps([VERSION, toolchain.identity()], sort_keys=True)
    try:
        return kept(
            folder / f"{key_of(module.content_digest(), about)}.npz",
            lambda path: ModuleFunctions.load(path, module),
            lambda functions: pack_arrays(functions.arrays(), compressed=True),
            lambda: _measured(module, toolchain),
        )
    except (CompileError, CorpusError, ProtocolError) as error:
        return str(error)


def _measured(module: Module, toolchain: Toolchain) -> ModuleFunctions:
    with scratch_directory() as scratch:
        features, sizes = compile_functions(module, toolchain, scratch, timeout_s=_TIMEOUT_S)
    return ModuleFunctions.make(module, features, sizes)


def _packed(names: Sequence[str]) -> np.ndarray:
    return np.frombuffer("\0".join(names).encode("utf-8", "surrogateescape"), np.uint8)


def _unpacked(data: np.ndarray) -> tuple[str, ...]:
    text = data.tobytes().decode("utf-8", "surrogateescape")
    return tuple(text.split("\0")) if text else ()
