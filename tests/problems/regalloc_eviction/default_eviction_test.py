"""The rebuilt default: its rules one by one, and what compilers make of it."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import rollout
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.problems import problem as problems
from compiler_opt.problems.regalloc_eviction.default_eviction import DefaultEviction
from compiler_opt.tensor_spec import TensorSpec
from tests.small_corpus import make_busy_corpus

_NAN = float("nan")
_PLACES = 4
_ITSELF = _PLACES - 1
_NAMES = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local", "use_def_density")
_HEADER = Header(
    tuple(TensorSpec(name, np.dtype("f4"), (1, _PLACES)) for name in _NAMES), TensorSpec("index", np.dtype("i8"), (1,))
)


@pytest.mark.parametrize(
    ("expected", "features"),
    [
        # The lightest, if it is lighter than the interval itself.
        (1, {"use_def_density": [0.5, 0.25, 1.0, 0.75]}),
        (_ITSELF, {"use_def_density": [0.5, 0.25, 1.0, 0.25]}),
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "mask": [1, 0, 1, 1]}),
        # Hints come first.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "nr_broken_hints": [0, 1, 0, 0]}),
        (2, {"use_def_density": [0.5, 0.25, 0.7, 0.75], "nr_broken_hints": [1, 1, 0, 0]}),
        # The register that was hinted at ends the search.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "is_hint": [1, 0, 0, 0]}),
        # A local one only when there is none yet.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "is_local": [1, 1, 0, 0]}),
        # Whoever must find a register takes the lightest whatever it weighs itself.
        (1, {"use_def_density": [1.0, 0.5, 1.0, 0.0], "mask": [1, 1, 1, 0]}),
        # An urgent eviction counts ten broken hints; what is free costs nothing.
        (0, {"use_def_density": [1.0, 0.5, 1.0, 0.0], "mask": [1, 1, 0, 0], "nr_urgent": [0, 1, 0, 0]}),
        (2, {"use_def_density": [0.5, 0.25, 0.0, 0.75], "is_free": [0, 0, 1, 0]}),
        # Infinity by infinity is no number, and too heavy.
        (_ITSELF, {"use_def_density": [_NAN, _NAN, _NAN, 0.0]}),
        (_ITSELF, {"use_def_density": [_NAN, 0.0, _NAN, 0.0]}),
        (0, {"use_def_density": [0.0, _NAN, _NAN, _NAN]}),
    ],
)
def test_a_rule(expected: int, features: dict[str, list[float]]) -> None:
    columns = {**dict.fromkeys(_NAMES, [0.0] * _PLACES), "mask": [1.0] * _PLACES, **features}
    observation = b"".join(np.array(columns[name], "f4").tobytes() for name in _NAMES)
    assert DefaultEviction().start(_HEADER, 0)(observation) == expected


def test_a_compiler_that_tells_too_little_is_refused() -> None:
    with pytest.raises(PolicyError, match="does not send the features use_def_density"):
        DefaultEviction().start(Header(_HEADER.features[:-1], _HEADER.advice), 0)


def test_compilers_make_the_same_of_it(toolchain: Toolchain, tmp_path: Path) -> None:
    """Where all weights are told; the functions called `sum...` have infinite ones."""
    problem = problems.load("regalloc_eviction")
    (tmp_path / "corpus").mkdir()
    corpus = make_busy_corpus(tmp_path / "corpus", str(toolchain.clang))
    num_decisions = 0
    for module in corpus.projects()["loops"]:
        paths = [tmp_path / f"{name}.o" for name in ("plain", "rebuilt", "none")]
        plain = rollout(module, None, problem, toolchain, scratch=tmp_path, keep_object=paths[0])
        rebuilt = rollout(module, problem.default_policy, problem, toolchain, scratch=tmp_path, keep_object=paths[1])
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert plain.measurement is not None and rebuilt.measurement == plain.measurement
        if rebuilt.trajectory is None:
            continue
        num_decisions += len(rebuilt.trajectory)
        assert isinstance(rebuilt.trajectory.sites, FunctionOfDecisions)
        assert set(rebuilt.trajectory.sites.functions) == set(plain.measurement)
        # So many decisions could have gone otherwise: evicting nothing gives another program.
        places = rebuilt.trajectory.features()["mask"].shape[-1]
        none = ConstantPolicy(places - 1, "none")
        rollout(module, none, problem, toolchain, scratch=tmp_path, keep_object=paths[2])
        assert paths[0].read_bytes() != paths[2].read_bytes()
    assert num_decisions >= 30
