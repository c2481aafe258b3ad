"""Trains IR2Vec vocabularies: a vector for each opcode, type and kind of argument, from the code of a corpus.

LLVM's tool `llvm-ir2vec` names these entities, and lists a module's facts about them as triplets: an instruction has a
type, an argument, a successor. As for LLVM's own vocabulary, the vectors are those of TransE (Bordes et al. 2013,
"Translating Embeddings for Modeling Multi-relational Data"): head + relation is closer to the tail than in false facts.

Legend: N entities, R relations, D dimensions, T triplets.
"""

import concurrent.futures
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.corpus.module import Module
from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox

_ARGUMENTS = ("Function", "Pointer", "Constant", "Variable")
_MAX_STDOUT_BYTES = 1 << 30
_MARGIN, _RATE = 0.3, 0.01
"""With a margin of 1, false facts are pushed away further than true ones are held together."""
_BATCH = 1024
_LINE = re.compile(rb"(\d{1,4})\t(\d{1,4})\t(\d{1,4})", re.ASCII)


def read_entities(tool: Path) -> tuple[str, ...]:
    """The N entities, in the order of their numbers in triplets.

    Raises:
      ToolchainError: the tool cannot be run, or prints something else.
    """
    result = processes.run([str(tool), "entities"], sandbox=Sandbox.for_folder(None))
    lines = [line.split("\t") for line in result.stdout.decode("ascii", "replace").splitlines()[1:]]
    if not result.ok or not lines or any(line[1:] != [str(number)] for number, line in enumerate(lines)):
        raise ToolchainError(f"{tool}: expected a list of entities, found {result.stdout[:80]!r}")
    return tuple(name for name, _ in lines)


def triplets(modules: Sequence[Module], tool: Path, num_workers: int = 1) -> Iterator[np.ndarray | str]:
    """Yields the different triplets of each module, `[T, 3]` int64 (head, tail, relation), or why it has none."""
    with concurrent.futures.ThreadPoolExecutor(max(1, num_workers)) as pool:
        yield from pool.map(lambda module: _triplets(module, tool), modules)


def _triplets(module: Module, tool: Path) -> np.ndarray | str:
    command = [str(tool), "triplets", str(module.bitcode_path)]
    result = processes.run(command, max_stdout_bytes=_MAX_STDOUT_BYTES, sandbox=Sandbox.for_folder(None))
    if not result.ok:
        return f"{module.name}: {tool.name}: {result.describe()}"
    found = {match.groups() for line in result.stdout.split(b"\n") if (match := _LINE.fullmatch(line))}
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 3)


def train_vectors(
    facts: Iterable[np.ndarray], num_entities: int, *, dimensions: int, epochs: int, seed: int
) -> tuple[np.ndarray, float]:
    """TransE's vectors `[N, D]`, and the share of triplets that are better than a false one.

    A vector's length is 1; that of an entity without triplets is 0.

    Raises:
      ProtocolError: a triplet names an entity that does not exist, or there are none.
    """
    known = np.unique(np.concatenate([np.empty((0, 3), np.int64), *facts]), axis=0)
    if not len(known) or known[:, :2].max() >= num_entities:
        raise ProtocolError(f"IR2Vec: expected triplets of {num_entities} entities, found {known[-1:].tolist()}")
    num_relations = int(known[:, 2].max()) + 1
    is_true = np.zeros((num_entities, num_entities, num_relations), bool)
    is_true[tuple(known.T)] = True
    random = np.random.default_rng(seed)
    bound = 6 / dimensions**0.5
    entities = _normalized(random.uniform(-bound, bound, (num_entities, dimensions)))
    relations = _normalized(random.uniform(-bound, bound, (num_relations, dimensions)))

    def difference(rows: np.ndarray) -> np.ndarray:
        return entities[rows[:, 0]] + relations[rows[:, 2]] - entities[rows[:, 1]]

    def falsified(rows: np.ndarray) -> np.ndarray:
        false = rows.copy()
        false[np.arange(len(rows)), random.integers(2, size=len(rows))] = random.integers(num_entities, size=len(rows))
        return false

    for _ in range(epochs):
        order = random.permutation(len(known))
        for start in range(0, len(known), _BATCH):
            true = known[order[start : start + _BATCH]]
            false = falsified(true)
            differences = difference(true), difference(false)
            lengths = [np.linalg.norm(each, axis=1) for each in differences]
            wrong = (lengths[0] + _MARGIN > lengths[1]) & ~is_true[tuple(false.T)]
            for rows, vectors, norms, sign in zip((true, false), differences, lengths, (1, -1), strict=True):
                step = sign * _RATE * vectors[wrong] / np.maximum(norms[wrong], 1e-9)[:, np.newaxis]
                np.add.at(entities, rows[wrong, 0], -step)
                np.add.at(entities, rows[wrong, 1], step)
                np.add.at(relations, rows[wrong, 2], -step)
            entities = _normalized(entities)
    false = falsified(known)
    is_false = ~is_true[tuple(false.T)]
    better = np.linalg.norm(difference(known), axis=1) < np.linalg.norm(difference(false), axis=1)
    entities[np.setdiff1d(np.arange(num_entities), known[:, :2])] = 0
    return entities, float(better[is_false].mean()) if is_false.any() else 1.0


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def vocabulary_json(names: Sequence[str], vectors: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """The vocabulary in LLVM's format, see `llvm.ir2vec`; predicates of comparisons count as arguments there."""
    sections: dict[str, dict[str, list[float]]] = {"Opcodes": {}, "Types": {}, "Arguments": {}}
    for name, vector in zip(names, vectors, strict=True):
        is_argument = name in _ARGUMENTS or "CMP_" in name
        section = "Arguments" if is_argument else "Types" if name.endswith("Ty") else "Opcodes"
        if vector.any():  # LLVM takes those that are missing for zeros.
            sections[section][name] = [round(float(number), 6) for number in vector]
    return sections
