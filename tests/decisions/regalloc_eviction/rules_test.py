"""LLVM's rule rebuilt, and the family of rules: what each condition and parameter does, and what compilers produce."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.rules import DefaultEviction, EvictionRule, default_choices
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.policies.rule import RulePolicy
from compiler_opt.tensor_spec import TensorSpec
from tests.small_corpus import make_busy_corpus

_NAN = float("nan")
_PLACES = 4
_ITSELF = _PLACES - 1
_NAMES = ("mask", "is_free", "nr_urgent", "nr_broken_hints", "is_hint", "is_local", "use_def_density")
_HEADER = Header(
    tuple(TensorSpec(name, np.dtype("f4"), (1, _PLACES)) for name in _NAMES), TensorSpec("index", np.dtype("i8"), (1,))
)
_PROBLEM = problems.load("regalloc_eviction")
_RULE = EvictionRule()


@pytest.fixture(scope="module")
def busy(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_busy_corpus(tmp_path_factory.mktemp("busy"), str(toolchain.clang))


@pytest.mark.parametrize(
    ("expected", "features"),
    [
        # The lightest, if it is lighter than the interval itself.
        (1, {"use_def_density": [0.5, 0.25, 1.0, 0.75]}),
        (_ITSELF, {"use_def_density": [0.5, 0.25, 1.0, 0.25]}),
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "mask": [1, 0, 1, 1]}),
        # Broken hints count before weights.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "nr_broken_hints": [0, 1, 0, 0]}),
        (2, {"use_def_density": [0.5, 0.25, 0.7, 0.75], "nr_broken_hints": [1, 1, 0, 0]}),
        # The hinted register ends the search.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "is_hint": [1, 0, 0, 0]}),
        # A local candidate is only taken if there is no cheapest yet.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "is_local": [1, 1, 0, 0]}),
        # An interval that must get a register takes the lightest, whatever its own weight.
        (1, {"use_def_density": [1.0, 0.5, 1.0, 0.0], "mask": [1, 1, 1, 0]}),
        # An urgent eviction counts as ten broken hints; a free candidate costs nothing.
        (0, {"use_def_density": [1.0, 0.5, 1.0, 0.0], "mask": [1, 1, 0, 0], "nr_urgent": [0, 1, 0, 0]}),
        (2, {"use_def_density": [0.5, 0.25, 0.0, 0.75], "is_free": [0, 0, 1, 0]}),
        # NaN is infinity / infinity, and too heavy.
        (_ITSELF, {"use_def_density": [_NAN, _NAN, _NAN, 0.0]}),
        (_ITSELF, {"use_def_density": [_NAN, 0.0, _NAN, 0.0]}),
        (0, {"use_def_density": [0.0, _NAN, _NAN, _NAN]}),
    ],
)
def test_a_condition_of_the_default(expected: int, features: dict[str, list[float]]) -> None:
    columns = {**dict.fromkeys(_NAMES, [0.0] * _PLACES), "mask": [1.0] * _PLACES, **features}
    observation = b"".join(np.array(columns[name], "f4").tobytes() for name in _NAMES)
    assert DefaultEviction().start(_HEADER, 0)(observation) == expected


@pytest.mark.parametrize(
    ("expected", "features"),
    [
        # The heaviest, also if that is the interval itself.
        (2, {"use_def_density": [0.5, 0.25, 1.0, 0.75]}),
        (_ITSELF, {"use_def_density": [0.5, 0.25, 1.0, 2.0]}),
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.25], "mask": [1, 1, 0, 1]}),
        # Broken hints count before weights, and an urgent eviction as ten.
        (1, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "nr_broken_hints": [0, 1, 0, 0]}),
        (1, {"use_def_density": [0.5, 0.25, 1.0, 0.75], "nr_broken_hints": [9, 0, 0, 0], "nr_urgent": [0, 1, 0, 0]}),
        # A free candidate costs nothing.
        (0, {"use_def_density": [0.5, 0.25, 1.0, 0.1], "is_free": [0, 0, 1, 0]}),
        # NaN is infinity / infinity.
        (1, {"use_def_density": [0.0, _NAN, 0.0, 0.0]}),
    ],
)
def test_the_most_expensive(expected: int, features: dict[str, list[float]]) -> None:
    columns = {**dict.fromkeys(_NAMES, [0.0] * _PLACES), "mask": [1.0] * _PLACES, **features}
    observation = b"".join(np.array(columns[name], "f4").tobytes() for name in _NAMES)
    assert _PROBLEM.decision.action_space.baselines()["most_expensive"].start(_HEADER, 0)(observation) == expected


def test_baselines_choose_legal_candidates(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module = busy.projects()["loops"][0]

    def compiled(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        policy = _PROBLEM.decision.action_space.baselines()[name]
        result = rollout(module, policy, _PROBLEM, toolchain, scratch=tmp_path, seed=seed)
        assert result.trajectory is not None, result.failure
        mask = result.trajectory.features()["mask"].reshape(len(result.trajectory), -1)
        assert mask[np.arange(len(mask)), result.trajectory.advice].all()
        return mask, result.trajectory.advice

    mask, first = compiled("first")
    np.testing.assert_array_equal(first, (mask != 0).argmax(axis=1))
    compiled("most_expensive")
    _, drawn = compiled("random")
    assert len(set(drawn.tolist())) > 3
    np.testing.assert_array_equal(compiled("random")[1], drawn)
    assert compiled("random", seed=1)[1].tolist() != drawn.tolist()


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(PolicyError, match="does not send the features use_def_density"):
        DefaultEviction().start(Header(_HEADER.features[:-1], _HEADER.advice), 0)


@pytest.mark.both_compilers
def test_the_rebuilt_default_compiles_to_the_same_object(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    """In functions whose weights are all known; those called `sum...` have infinite ones."""
    num_decisions = 0
    for module in busy.projects()["loops"]:
        paths = [tmp_path / f"{name}.o" for name in ("plain", "rebuilt", "none")]
        plain = rollout(module, None, _PROBLEM, toolchain, scratch=tmp_path, keep_object=paths[0])
        rebuilt = rollout(
            module, _PROBLEM.decision.default_policy, _PROBLEM, toolchain, scratch=tmp_path, keep_object=paths[1]
        )
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert plain.measurement is not None and rebuilt.measurement == plain.measurement
        if rebuilt.trajectory is None:
            continue
        num_decisions += len(rebuilt.trajectory)
        assert isinstance(rebuilt.trajectory.sites, FunctionOfDecisions)
        assert set(rebuilt.trajectory.sites.functions) == set(plain.measurement)
        # The decisions matter: evicting nothing gives another object.
        places = rebuilt.trajectory.features()["mask"].shape[-1]
        none = ConstantPolicy(places - 1, "none")
        rollout(module, none, _PROBLEM, toolchain, scratch=tmp_path, keep_object=paths[2])
        assert paths[0].read_bytes() != paths[2].read_bytes()
    assert num_decisions >= 30


def _choose(parameters: dict[str, float], **columns: list[float]) -> int:
    """Decides once between live ranges that weigh 0.25, 0.5, 1 and 0.75, the last of which needs a register."""
    features = {
        **dict.fromkeys(_RULE.features, [0.0] * _PLACES),
        "mask": [1.0] * _PLACES,
        "use_def_density": [0.25, 0.5, 1.0, 0.75],
        "liverange_size": [0.5] * _PLACES,
        **columns,
    }
    values = _RULE.values({**_RULE.named(_RULE.start()), **parameters})
    arrays = {name: np.array([[column]], np.float32) for name, column in features.items()}
    return int(_RULE.choose(values, arrays)[0])


@pytest.mark.parametrize(
    ("expected", "parameters", "columns"),
    [
        # Like LLVM: the lightest, if lighter than the interval itself; hints first.
        (0, {}, {}),
        (1, {}, {"mask": [0, 1, 1, 1]}),
        (_ITSELF, {}, {"mask": [0, 0, 1, 1]}),
        (1, {}, {"nr_broken_hints": [1, 0, 0, 0]}),
        (1, {}, {"is_hint": [0, 1, 0, 0]}),
        (2, {}, {"mask": [0, 0, 1, 0]}),
        # With `length`, the total cost of spilling counts instead of its density.
        (1, {"length": 1.0}, {"liverange_size": [1.0, 0.1, 0.5, 0.5]}),
        (_ITSELF, {"length": 1.0}, {"liverange_size": [1.0, 1.0, 1.0, 0.1]}),
        # `eager` makes any eviction more or less likely.
        (_ITSELF, {"eager": -2.0}, {}),
        (2, {"eager": 1.0}, {"mask": [0, 0, 1, 1]}),
        # Other properties raise or lower the cost.
        (1, {"local": 2.0}, {"is_local": [1, 0, 0, 0]}),
        (1, {"rematerializable": -2.0}, {"nr_rematerializable": [0, 1, 0, 0]}),
        (1, {"stage": 1.0}, {"max_stage": [2, 0, 0, 0]}),
        (1, {"broken_hints": -2.0}, {"nr_broken_hints": [0, 1, 0, 0]}),
        # A free candidate is taken whatever the parameters are.
        (2, {"eager": -9.0}, {"is_free": [0, 0, 1, 0]}),
    ],
)
def test_a_parameter(expected: int, parameters: dict[str, float], columns: dict[str, list[float]]) -> None:
    assert _choose(parameters, **columns) == expected


_flags = st.lists(st.booleans(), min_size=_PLACES, max_size=_PLACES)
_counts = st.lists(st.integers(0, 2), min_size=_PLACES, max_size=_PLACES)
_weights = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, float("inf"), _NAN]), min_size=_PLACES, max_size=_PLACES)


@pytest.mark.ci
@settings(max_examples=400)
@given(
    st.fixed_dictionaries(
        dict.fromkeys(("mask", "is_free", "is_hint", "is_local"), _flags)
        | dict.fromkeys(("nr_urgent", "nr_broken_hints"), _counts)
        | {"use_def_density": _weights}
    )
)
def test_the_default_is_that_of_a_loop_over_the_candidates(columns: dict[str, list[float]]) -> None:
    weight = [float("inf") if value != value else value for value in columns["use_def_density"]]
    must_succeed = not columns["mask"][_ITSELF]
    chosen, cheapest = _ITSELF, (float("inf"), float("inf"))
    for place in range(_ITSELF):
        free = columns["is_free"][place]
        cost = (columns["nr_broken_hints"][place] + 10.0 * columns["nr_urgent"][place], weight[place])
        too_heavy = not must_succeed and weight[place] >= weight[_ITSELF]
        too_late = not must_succeed and chosen != _ITSELF and columns["is_local"][place]
        if columns["mask"][place] and (free or not (cost >= cheapest or too_heavy or too_late)):
            chosen, cheapest = place, (0.0, 0.0) if free else cost
            if columns["is_hint"][place]:
                break
    features = {name: np.array([[column]], np.float32) for name, column in columns.items()}
    assert default_choices(features).tolist() == [chosen]


def test_where_weights_are_lost_the_default_decides() -> None:
    columns = {"use_def_density": [0.0, 0.0, _NAN, 0.0], signature.PLUGIN_DEFAULT: [1.0]}
    assert _choose({"eager": -9.0}, **columns) == 1


_numbers = st.lists(st.floats(0, 1, width=32), min_size=_PLACES, max_size=_PLACES)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-3, 3), min_size=len(_RULE.parameters), max_size=len(_RULE.parameters)),
    st.lists(st.booleans(), min_size=_PLACES, max_size=_PLACES).filter(any),
    st.fixed_dictionaries(dict.fromkeys(signature.FEATURES, _numbers)),
)
def test_choices_are_legal(values: list[float], mask: list[bool], columns: dict[str, list[float]]) -> None:
    features = {name: np.array([[column]], np.float32) for name, column in columns.items()}
    features[signature.MASK] = np.array([[mask]], np.int64)
    features[signature.PLUGIN_DEFAULT] = np.array([[mask.index(True)]], np.int64)
    [chosen] = _RULE.choose(np.array(values), features)
    assert mask[chosen]


@pytest.mark.ci
def test_the_initial_parameters_mostly_decide_as_the_compiler(
    busy: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    chosen: dict[str, list[np.ndarray]] = {"start": [], "other": []}
    for module in busy.modules:
        policies = {"start": _RULE.start(), "other": _RULE.start() + 2 * _RULE.scale()}
        for name, values in policies.items():
            result = rollout(module, RulePolicy(_RULE, values), _PROBLEM, toolchain, scratch=tmp_path)
            assert result.failure is None
            if result.trajectory is None:
                continue
            features = result.trajectory.features()
            chosen[name].append(result.trajectory.advice == default_choices(features))
    agreement = {name: np.concatenate(parts).mean() for name, parts in chosen.items()}
    assert agreement["start"] > 0.9
    assert agreement["other"] < agreement["start"]
