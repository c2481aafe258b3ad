"""Training logs to read: written record by record, as plainly as can be, with what was written beside them."""

import dataclasses
import json

import numpy as np
from hypothesis import strategies as st

from compiler_opt.llvm.training_log_reader import TrainingLog
from compiler_opt.tensor_spec import TensorSpec

TYPES = [np.dtype(code) for code in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
ADVICE = TensorSpec("advice", np.dtype("i8"), (1,))


@dataclasses.dataclass
class Sample:
    """What was written, one Python object each, and the byte where each ends."""

    content: bytes
    features: list[TensorSpec]
    advice: TensorSpec | None
    score: TensorSpec | None
    contexts: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    observations: list[bytes] = dataclasses.field(default_factory=list)
    outcomes: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)
    context_ends: list[int] = dataclasses.field(default_factory=list)
    observation_ends: list[int] = dataclasses.field(default_factory=list)
    outcome_ends: list[int] = dataclasses.field(default_factory=list)

    @property
    def header_bytes(self) -> int:
        return self.content.index(b"\n") + 1


def write(
    features: list[TensorSpec],
    score: TensorSpec | None,
    contexts: list[tuple[str, int, str]],
    seed: int,
    advice: bool = True,
) -> Sample:
    """As LLVM's `Logger` does; a context has a name, a first index, and `.`, `o` (with an outcome) per observation."""
    rng = np.random.default_rng(seed)
    header: dict[str, object] = {"features": [spec.to_json() for spec in features]}
    if score is not None:
        header["score"] = score.to_json()
    if advice:
        header["advice"] = ADVICE.to_json()
    line = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    sample = Sample(b"", features, ADVICE if advice else None, score)
    content = bytearray(line + b"\n")
    for name, first, observations in contexts:
        sample.contexts.append((name, len(sample.observations)))
        line = json.dumps({"context": name}, separators=(",", ":"), ensure_ascii=False).encode()
        content += line + b"\n"
        sample.context_ends.append(len(content))
        for index, kind in enumerate(observations, first):
            payload = rng.bytes(sum(spec.num_bytes for spec in features))
            content += b'{"observation":%d}\n' % index + payload + b"\n"
            sample.observations.append(payload)
            sample.observation_ends.append(len(content))
            if kind == "o" and score is not None:
                outcome = rng.bytes(score.num_bytes)
                content += b'{"outcome":%d}\n' % index + outcome + b"\n"
                sample.outcomes.append((len(sample.observations) - 1, outcome))
                sample.outcome_ends.append(len(content))
    sample.content = bytes(content)
    return sample


def check(log: TrainingLog, sample: Sample, end: int) -> None:
    """That a log, or what there is of it up to a byte, was read as it was written."""
    contexts, observations, outcomes = (
        sum(place <= end for place in places)
        for places in (sample.context_ends, sample.observation_ends, sample.outcome_ends)
    )
    assert (list(log.features), log.advice, log.score) == (sample.features, sample.advice, sample.score)
    assert list(log.contexts[:contexts]) == sample.contexts[:contexts]
    assert [row.tobytes() for row in log.observations[:observations]] == sample.observations[:observations]
    assert [row.tobytes() for row in log.outcomes[:outcomes]] == [raw for _, raw in sample.outcomes[:outcomes]]
    assert log.outcome_of[:outcomes].tolist() == [number for number, _ in sample.outcomes[:outcomes]]


def check_all(log: TrainingLog, sample: Sample) -> None:
    """That a log was read as it was written, and nothing else."""
    check(log, sample, len(sample.content))
    assert len(log.contexts) == len(sample.contexts)
    assert len(log) == len(sample.observations)
    assert len(log.outcomes) == len(log.outcome_of) == len(sample.outcomes)


def same(one: TrainingLog, other: TrainingLog) -> bool:
    """Whether all of two logs is equal, bit by bit."""
    return (one.features, one.advice, one.score, one.contexts, one.left_bytes) == (
        other.features,
        other.advice,
        other.score,
        other.contexts,
        other.left_bytes,
    ) and all(
        left.shape == right.shape and left.tobytes() == right.tobytes()
        for left, right in (
            (one.observations, other.observations),
            (one.outcomes, other.outcomes),
            (one.outcome_of, other.outcome_of),
        )
    )


specs = st.builds(TensorSpec, st.just("x"), st.sampled_from(TYPES), st.lists(st.integers(1, 4), max_size=3).map(tuple))
features = st.lists(specs, min_size=1, max_size=5).map(
    lambda specs: [dataclasses.replace(spec, name=f"feature {index}") for index, spec in enumerate(specs)]
)
_names = st.text(st.characters(codec="utf-8", exclude_characters="\b\f"), max_size=5)
# Some contexts are long enough to be read at once.
_kinds = st.text(".o", max_size=25) | st.builds(str.__mul__, st.sampled_from([".", "o"]), st.integers(50, 120))
_seeds = st.integers(0, 1 << 32)
# Where indices get another digit, or where the fourth from the end changes.
_firsts = st.sampled_from([0, 7, 98, 995, 5990, 10**9 - 2])
_contexts = st.lists(st.tuples(_names, _firsts, _kinds), max_size=4)
samples = st.builds(write, features, st.none() | specs, _contexts, _seeds, st.booleans())
_contexts_of_llvm = st.lists(st.tuples(_names, st.just(0), _kinds), max_size=4, unique_by=lambda context: context[0])
samples_of_llvm = st.builds(write, features, st.none() | specs, _contexts_of_llvm, _seeds, st.booleans())
