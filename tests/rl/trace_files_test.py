"""Traces on disk are read as they were written, and appear only when they are complete."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.collect.traces import TraceContext, TraceDescription, meta_path
from compiler_opt.errors import OutputError, ProtocolError
from compiler_opt.rl.trace_files import Trace, TraceBatch, TraceWriter
from compiler_opt.tensor_spec import TensorSpec

_ADVICE = TensorSpec("inlining_decision", np.dtype("i8"), ())
_FEATURES = (
    TensorSpec("cost", np.dtype("i8"), ()),
    TensorSpec("weights", np.dtype("f4"), (3,)),
    TensorSpec("mask", np.dtype("i8"), (2, 2)),
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def context(module: str, seed: int = 0, length: int = 3, cost: list[int] | None = None) -> TraceContext:
    rng = np.random.default_rng(seed)
    length = length if cost is None else len(cost)
    values: dict[str, np.ndarray] = {
        "cost": np.array(cost, np.int64) if cost is not None else rng.integers(-9, 9, length),
        "weights": rng.random((length, 3), np.float32),
        "mask": rng.integers(0, 2, (length, 2, 2)),
    }
    action = rng.integers(0, 2, length)
    return TraceContext(module, "p", "default", _FEATURES, values, _ADVICE, action, np.zeros(length, np.float32))


def write(path: Path, contexts: list[TraceContext]) -> None:
    with TraceWriter(path) as writer:
        for one in contexts:
            writer.add(one)
        writer.finish({key: len(key[0]) for key in writer.keys}, {"seed": 7})


def by_module(batches: list[TraceBatch]) -> dict[str, dict[str, np.ndarray]]:
    result = {}
    for batch in batches:
        ends = np.cumsum(batch.lengths)
        for module, start, end in zip(batch.modules, ends - batch.lengths, ends, strict=True):
            columns = {**batch.features, "action": batch.action}
            result[module] = {name: values[start:end] for name, values in columns.items()}
    return result


@pytest.mark.ci
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.one_of(
            st.text(min_size=1, max_size=5),
            st.binary(min_size=1, max_size=5).map(lambda name: name.decode("utf-8", "surrogateescape")),
        ),
        st.lists(INT64, min_size=1, max_size=6),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 4),
)
def test_what_is_written_is_read(tmp_path: Path, costs: dict[str, list[int]], contexts_per_batch: int) -> None:
    written = [context(module, seed, cost=cost) for seed, (module, cost) in enumerate(costs.items())]
    write(tmp_path / "trace", written)
    trace = Trace(tmp_path / "trace")
    assert (trace.features, trace.advice) == (_FEATURES, _ADVICE)
    assert trace.num_contexts == len(costs)
    assert trace.num_decisions == sum(map(len, costs.values()))
    batches = list(trace.batches(contexts_per_batch=contexts_per_batch))
    found = by_module(batches)
    assert [name for batch in batches for name in batch.modules] == sorted(costs)
    for one in written:
        for name, values in {**one.values, "action": one.action}.items():
            np.testing.assert_array_equal(found[one.module][name], values)


def test_records_are_sequence_examples_as_anyone_would_write_them(tmp_path: Path) -> None:
    one = context("m", cost=[5, -6])
    write(tmp_path / "trace", [one])
    (record,) = tf.data.TFRecordDataset(str(tmp_path / "trace")).as_numpy_iterator()
    found = tf.train.SequenceExample.FromString(record)
    expected = tf.train.SequenceExample()
    for key, text in (("module", b"m"), ("project", b"p"), ("identifier", b"default")):
        expected.context.feature[key].bytes_list.value.append(text)
    expected.context.feature["score"].float_list.value.append(1)
    lists = expected.feature_lists.feature_list
    for step in range(2):
        lists["cost"].feature.add().int64_list.value.append([5, -6][step])
        lists["weights"].feature.add().float_list.value.extend(one.values["weights"][step].tolist())
        lists["mask"].feature.add().int64_list.value.extend(one.values["mask"][step].flatten().tolist())
        lists["inlining_decision"].feature.add().int64_list.value.append(int(one.action[step]))
        lists["reward"].feature.add().float_list.value.append(0)
    assert found == expected


def test_the_order_of_completion_does_not_show(tmp_path: Path) -> None:
    contexts = [context(f"m{index}", index) for index in range(5)]
    write(tmp_path / "a", contexts)
    write(tmp_path / "b", contexts[::-1])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert meta_path(tmp_path / "a").read_bytes() == meta_path(tmp_path / "b").read_bytes()


def test_only_the_features_asked_for_are_read(tmp_path: Path) -> None:
    write(tmp_path / "trace", [context("m")])
    (batch,) = Trace(tmp_path / "trace").batches(["weights"])
    assert list(batch.features) == ["weights"]
    with pytest.raises(ProtocolError, match="lacks the features height;"):
        list(Trace(tmp_path / "trace").batches(["weights", "height"]))


def test_an_interrupted_writer_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "trace", [context("m")])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(KeyboardInterrupt), TraceWriter(tmp_path / "trace") as writer:
        writer.add(context("n"))
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "trace", [context("m")])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with TraceWriter(tmp_path / "trace") as writer:
        writer.add(context("n"))
        monkeypatch.setattr(tf.io.TFRecordWriter, "write", full)
        with pytest.raises(OutputError, match="No space left on device"):
            writer.finish({("n", "default"): 1.0}, {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_contexts_of_another_compiler_are_refused(tmp_path: Path) -> None:
    one = context("m")
    fewer = TraceContext("n", "p", "default", _FEATURES[:1], {"cost": one.action}, _ADVICE, one.action, one.reward)
    with TraceWriter(tmp_path / "trace") as writer:
        writer.add(one)
        with pytest.raises(ProtocolError, match="other features"):
            writer.add(fewer)


def test_nothing_to_decide_writes_nothing(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer, pytest.raises(ProtocolError, match="has any decisions"):
        writer.finish({}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_trace_or_description(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="trace: no such file"):
        Trace(tmp_path / "trace")
    (tmp_path / "trace").write_bytes(b"")
    with pytest.raises(ProtocolError, match=r"trace\.meta\.json: no such file"):
        TraceDescription(tmp_path / "trace")
    with pytest.raises(ProtocolError, match="trace: expected decisions named index_to_evict or inlining_decision"):
        Trace(tmp_path / "trace")


def test_a_truncated_trace_is_noticed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    write(path, [context("m")])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ProtocolError, match="do not belong together"):
        Trace(path)


def test_a_feature_of_another_length_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    write(path, [context("a", 1), context("b", 2)])
    [first, second] = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    example = tf.train.SequenceExample.FromString(second)
    del example.feature_lists.feature_list["weights"].feature[-1]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in (first, example.SerializeToString()):
            writer.write(record)
    about = json.loads(meta_path(path).read_text())
    meta_path(path).write_text(json.dumps({**about, "trace_bytes": path.stat().st_size}))
    with pytest.raises(ProtocolError, match=r"trace: damaged \(.*length of .*weights"):
        list(Trace(path).batches())


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    write(path, [context("m")])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="trace: damaged"):
        list(Trace(path).batches())


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 1, "features": 3}', b'{"format": 99}', b"\xff"])
def test_a_damaged_description_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace"
    write(path, [context("m")])
    meta_path(path).write_bytes(content)
    with pytest.raises(ProtocolError, match=r"trace\.meta\.json: "):
        Trace(path)


def write_undescribed(path: Path, contexts: list[TraceContext]) -> None:
    """Writes a trace as google/ml-compiler-opt does: without description, names, and shapes of features."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for one in contexts:
            example = tf.train.SequenceExample()
            lists = example.feature_lists.feature_list
            for step in range(len(one.action)):
                lists["cost"].feature.add().int64_list.value.append(int(one.values["cost"][step]))
                lists["weights"].feature.add().float_list.value.extend(one.values["weights"][step].tolist())
                lists["inlining_default"].feature.add().int64_list.value.append(int(one.action[step]))
                lists["inlining_decision"].feature.add().int64_list.value.append(int(one.action[step]))
                lists["reward"].feature.add().float_list.value.append(0)
            file.write(example.SerializeToString())


def test_a_trace_without_description_is_described_by_its_records(tmp_path: Path) -> None:
    contexts = [context("a", 1, length=0), context("b", 2), context("c", 3, length=1)]
    write_undescribed(tmp_path / "trace", contexts)
    trace = Trace(tmp_path / "trace")
    assert trace.undescribed == (tmp_path / "trace",)
    assert trace.about["problem"] == "inlining"
    assert trace.features == _FEATURES[:2]
    assert trace.advice == _ADVICE
    assert (trace.num_contexts, trace.num_decisions) == (3, 4)
    found = by_module(list(trace.batches(contexts_per_batch=2)))
    assert list(found) == ["#0", "#1", "#2"]
    for name, one in zip(found, contexts, strict=True):
        for feature in ("cost", "weights"):
            np.testing.assert_array_equal(found[name][feature], one.values[feature])
        np.testing.assert_array_equal(found[name]["action"], one.action)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace"]


def test_several_traces_are_read_as_one(tmp_path: Path) -> None:
    parts = [[context("a", 1), context("b", 2)], [context("c", 3)]]
    for number, part in enumerate(parts):
        write(tmp_path / f"trace{number}", part)
    trace = Trace(tmp_path / "trace0", tmp_path / "trace1")
    assert (trace.num_contexts, trace.num_decisions) == (3, 9)
    found = by_module(list(trace.batches(contexts_per_batch=2)))
    for one in (*parts[0], *parts[1]):
        np.testing.assert_array_equal(found[one.module]["action"], one.action)


def test_traces_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "trace", [context("a", 1)])
    write_undescribed(tmp_path / "other", [context("a", 1)])
    with pytest.raises(ProtocolError, match=r"other: its decisions have other features than those of .*trace"):
        Trace(tmp_path / "trace", tmp_path / "other")
    with pytest.raises(ProtocolError, match="missing: no such file"):
        Trace(tmp_path / "trace", tmp_path / "missing")


@pytest.mark.parametrize("content", [b"", b"no trace", b"\0" * 100])
def test_what_is_no_trace(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(ProtocolError, match=r"trace: expected .*generate_default_trace"):
        Trace(tmp_path / "trace")
