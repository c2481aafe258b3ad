"""What tests of IR2Vec embeddings share: vocabularies of random numbers in LLVM's format, and networks."""

import itertools
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.policies.weights import NetworkWeights

OPCODES = (
    "Ret Br Switch Add Sub Mul Shl And Or Xor Alloca Load Store GetElementPtr Trunc ZExt SExt ICmp PHI Call Select"
).split()
TYPES = "FloatTy VoidTy IntegerTy FunctionTy PointerTy StructTy ArrayTy".split()
ARGUMENTS = "Function Pointer Constant Variable".split()


def random_vocabulary(dimensions: int = 8, seed: int = 1) -> dict[str, Any]:
    draw = random.Random(seed)
    return {
        section: {name: [round(draw.uniform(-1, 1), 4) for _ in range(dimensions)] for name in names}
        for section, names in (("Opcodes", OPCODES), ("Types", TYPES), ("Arguments", ARGUMENTS))
    }


def write_vocabulary(path: Path, dimensions: int = 8, seed: int = 1) -> Path:
    """Returns the path."""
    path.write_text(json.dumps(random_vocabulary(dimensions, seed)))
    return path


def random_network(features: Mapping[str, np.ndarray]) -> NetworkWeights:
    """A network that sees all of some features, its vocabulary made of their values."""
    draw = np.random.default_rng(1)
    columns = [np.sort(values.reshape(-1).astype(np.float64))[:40] for values in features.values()]
    sizes = (3 * len(columns), 16, 2)
    return NetworkWeights(
        tuple(features),
        tuple(columns),
        tuple(draw.normal(0, rows**-0.5, (rows, width)).astype("f4") for rows, width in itertools.pairwise(sizes)),
        tuple(draw.normal(0, 0.3, size).astype("f4") for size in sizes[1:]),
        {"problem": "inlining"},
    )
