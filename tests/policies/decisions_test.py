"""Decision files: what identifies a decision, the file on disk, and its native form."""

import dataclasses
import pickle
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.files import write_checked_json
from compiler_opt.llvm.interactive import FollowsContexts
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.decisions import (
    Base,
    Decisions,
    OverridingPolicy,
    Site,
    guid,
    provenance,
    sites_of,
)
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.tensor_spec import TensorSpec

_HEADER = Header((TensorSpec("mask", np.dtype("i8"), (4,)),), TensorSpec("advice", np.dtype("i8"), (1,)))
_ABOUT = {**provenance("inlining", (22, 1, 8)), "program": "zlib"}
_WEIGHTS = NetworkWeights.keeping_default("x")
_LEARNED = Base(_WEIGHTS, b"mlgo-net" + struct.pack("<II", 1, 0xABC) + bytes(84))
_A, _B = Site("f", 2**64 - 1, "g", 0), Site("f", 7, "g", 1)
_PLACE = Site.in_function("f", 3)

_NAMES = st.binary(max_size=12).map(lambda name: name.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
_ORDINALS = st.integers(0, 2**32 - 1)
_CALLS = st.builds(Site, _NAMES, st.integers(1, 2**64 - 1), _NAMES, _ORDINALS)
_OTHERS = st.builds(Site.in_function, _NAMES, _ORDINALS)
_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-(2.0**53), 2.0**53)
_ADVICE = st.dictionaries(_CALLS, st.integers(0, 1), max_size=8) | st.dictionaries(_OTHERS, _NUMBERS, max_size=8)
_DECISIONS = _ADVICE.map(lambda advice: Decisions(advice, _ABOUT))


def test_the_ordinal_counts_calls_of_the_same_callee_in_the_same_caller() -> None:
    callers, callees = (np.array(column, np.int32) for column in ([0, 0, 1, 0, 0], [1, 1, 2, 2, 1]))
    bodies = np.array([2**64 - 1, 2**64 - 1, 5, 2**64 - 1, 2**64 - 1], np.uint64)
    found = sites_of(CallSites(("f", "g", "h"), callers, callees, np.zeros(5, bool), bodies))
    body = 2**64 - 1
    assert found == [
        Site("f", body, "g", 0),
        Site("f", body, "g", 1),
        Site("g", 5, "h", 0),
        Site("f", body, "h", 0),
        Site("f", body, "g", 2),
    ]
    with pytest.raises(PolicyError, match="use the backend plugin"):
        sites_of(CallSites(("f",), callers, callees, np.zeros(5, bool)))


# Each example writes a file to disk.
@hypothesis.settings(max_examples=25)
@hypothesis.given(_DECISIONS)
def test_a_file_and_a_pickle_give_the_same_decisions(decisions: Decisions) -> None:
    with tempfile.TemporaryDirectory() as folder:
        decisions.save(Path(folder) / "decisions.json")
        read = Decisions.load(Path(folder) / "decisions.json")
    for copy in (read, pickle.loads(pickle.dumps(decisions))):  # noqa: S301 - our own
        assert copy == decisions and list(copy) == list(decisions) and copy.about == decisions.about


def test_operations_leave_the_original_as_it_is() -> None:
    decisions = Decisions({_A: 1, _B: 0}, _ABOUT)
    assert list(decisions) == [_B, _A] and len(decisions) == 2 and decisions.major == 22
    assert decisions.merged(Decisions({_A: 0}, {"cost": 5})) == {_A: 0, _B: 0}
    assert decisions == {_A: 1, _B: 0}
    with pytest.raises(PolicyError, match="cannot merge those for the versions of LLVM 22 and 19"):
        decisions.merged(Decisions({}, {"llvm": "19.1.7"}))


@pytest.mark.parametrize(
    ("advice", "about", "message"),
    [
        ({_A: 2}, {}, "expected advice of 0 or 1, found 2"),
        *(
            ({_PLACE: advice}, {}, r"expected advice of at most 2\^53, found")
            for advice in (float("nan"), float("inf"), -1e300, 10**400)
        ),
        ({_A: 1, _PLACE: 1}, {}, "expected all on calls, or none, found some"),
        ({Site("f", 2**64, "g", 0): 1}, {}, "expected a body of 64 bits"),
        ({Site("f", 0, "g", -1): 1}, {}, "expected a body of 64 bits"),
        ({}, {"llvm": 22}, "expected a version of LLVM such as '22.1.8', found 22"),
        ({}, {"policy": "best"}, "expected the checksum of a policy, or 'default', found 'best'"),
    ],
)
def test_impossible_values_are_refused(advice: dict[Site, int], about: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Decisions(advice, about)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "damaged (not JSON)"),
        (lambda text: text[:-30], "damaged (not JSON)"),
        (lambda text: text.replace('"g"', '"h"'), "damaged (does not match its checksum)"),
        (lambda text: "[" * 100_000, "damaged (not JSON)"),
    ],
)
def test_a_damaged_file_is_refused_by_name(damage: Callable[[str], str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    Decisions({_A: 1}, _ABOUT).save(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(PolicyError) as raised:
        Decisions.load(path)
    assert str(raised.value).startswith(f"{path}: ") and message in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 1, "about": {}}, "expected the key 'functions'"),
        ({"format": 9, "about": {}, "functions": []}, "expected format 1, found 9"),
        ({"format": 1, "about": {}, "functions": [{"name": "f", "body": "7", "calls": []}]}, "body"),
        ({"format": 1, "about": {}, "functions": [{"name": "f", "body": "0" * 16, "calls": [["g", 0, 2]]}]}, "0 or 1"),
        ({"format": 1, "about": {}, "functions": [{"name": "f", "body": "0" * 16, "calls": [["g", 0, "1"]]}]}, "calls"),
        (
            {"format": 1, "about": {}, "functions": [{"name": "f", "body": "0" * 16, "calls": [["g", 1 << 32, 1]]}]},
            "calls",
        ),
        ({"format": 1, "about": {"llvm": "new"}, "functions": []}, "expected a version of LLVM"),
        (
            {"format": 1, "about": {}, "functions": [{"name": "f", "body": "0" * 16, "calls": [["g", 0, 1]] * 2}]},
            "is given twice",
        ),
    ],
)
def test_a_file_with_other_content_is_refused_by_name(content: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    write_checked_json(path, content)
    with pytest.raises(PolicyError) as raised:
        Decisions.load(path)
    assert str(raised.value).startswith(f"{path}: ") and message in str(raised.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"decisions.json: cannot be read \(No such file"):
        Decisions.load(tmp_path / "decisions.json")


def test_the_native_form_has_sorted_records() -> None:
    # LLVM's own values: the first 8 bytes of the names' MD5.
    assert guid("main") == 15822663052811949562
    advice = {Site("f", body, callee, ordinal): body % 2 for body in (3, 2) for callee in "ab" for ordinal in (1, 0)}
    blob = Decisions(advice, _ABOUT).native_form(major=22)
    assert blob[:8] == b"mlgo-dec" and len(blob) == struct.unpack_from("<Q", blob, 16)[0]
    assert struct.unpack_from("<4I", blob, 24)[:3] == (22, 2, 8)
    assert struct.unpack_from("<2I", blob, 40) == (0, 0)
    callers = [struct.unpack_from("<QQII", blob, 48 + 24 * index) for index in range(2)]
    assert callers == [(guid("f"), 2, 0, 4), (guid("f"), 3, 4, 4)]
    records = [struct.unpack_from("<QII", blob, 96 + 16 * index) for index in range(8)]
    keys = sorted((guid(callee), ordinal) for callee in "ab" for ordinal in (0, 1))
    assert records == [(*key, 0) for key in keys] + [(*key, 1) for key in keys]


def test_another_compiler_or_policy_is_refused() -> None:
    decisions = Decisions({_A: 1}, _ABOUT)
    decisions.check(major=22, base=Base())
    Decisions({_A: 1}).check(major=19, base=_LEARNED)
    with pytest.raises(PolicyError, match=r"a.json: for LLVM 22, but the compiler has LLVM 19"):
        decisions.check(major=19, base=Base(), origin="a.json")
    with pytest.raises(PolicyError, match=f"made with the default decisions, but this is the policy {_LEARNED.name}"):
        decisions.native_form(major=22, base=_LEARNED)
    with pytest.raises(PolicyError, match="expected inlining decisions, found those of register allocation"):
        Decisions({_PLACE: 3.5}).native_form(major=22)
    with pytest.raises(PolicyError, match="no native form"):
        Decisions({}).native_form(major=22, base=Base(_WEIGHTS))


def test_a_policy_is_known_by_its_weights() -> None:
    about = provenance("inlining", (22, 1, 8), _LEARNED)
    assert about == {"problem": "inlining", "llvm": "22.1.8", "policy": _WEIGHTS.checksum()}
    assert struct.unpack_from("<2I", Decisions({}, about).native_form(major=22, base=_LEARNED), 40) == (0xABC, 100)
    # With other metadata, the native form has another CRC-32.
    evaluated = Base(dataclasses.replace(_WEIGHTS, metadata={"gain": 1}), b"mlgo-net" + bytes(100))
    Decisions({}, about).check(major=22, base=evaluated)
    # As files named it that were written before.
    earlier = Decisions({}, {"policy": "00000abc-100"})
    earlier.check(major=22, base=_LEARNED)
    with pytest.raises(PolicyError, match="made with the policy 00000abc-100, but this is the policy"):
        earlier.check(major=22, base=evaluated)


def test_calls_are_unknown_outside_the_compiler() -> None:
    for decisions in (Decisions(), Decisions({_A: 1})):
        with pytest.raises(PolicyError, match="'never with decisions': only the inliner's plugin replays"):
            OverridingPolicy(ConstantPolicy(0, "never"), decisions).start(_HEADER, 0)


def _advice(decisions: dict[Site, int], functions: str, mask: str | None = None) -> list[int | float]:
    """Of one decision in each of the functions in turn, where the base's advice is 1 and 2 is illegal."""
    policy = OverridingPolicy(ConstantPolicy(1), Decisions(decisions), mask=mask)
    decider = policy.start(_HEADER, 0)
    assert isinstance(decider, FollowsContexts)
    advice = []
    for function in functions:
        decider.enter(function)
        advice.append(decider(np.array([1, 1, 0, 1], "i8").tobytes()))
    return advice


def test_places_are_counted_by_function() -> None:
    changed = {Site.in_function("f", 1): 3, Site.in_function("g", 0): 2, Site.in_function("h", 5): 0}
    # Function h has no sixth decision.
    assert _advice(changed, "fgfgfhho") == [1, 2, 3, 1, 1, 1, 1, 1]
    assert _advice(changed, "fgfgfhho", mask="mask") == [1, 1, 3, 1, 1, 1, 1, 1]
    assert _advice({Site.in_function("f", 0): 4, Site.in_function("g", 0): -1}, "fg", mask="mask") == [1, 1]


def test_a_place_needs_the_name_of_its_function_and_the_features_of_the_base() -> None:
    base = ConstantPolicy(1)
    policy = OverridingPolicy(base, Decisions({_PLACE: 0}))
    assert not policy.needs_default
    with pytest.raises(ProtocolError, match="without the name of its function"):
        policy.start(_HEADER, 0)(bytes(32))
    base.needs_default = True
    assert OverridingPolicy(base, Decisions({_PLACE: 0})).needs_default
    assert not OverridingPolicy(base, Decisions()).needs_default
