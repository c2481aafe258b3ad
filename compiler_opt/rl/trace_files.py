"""Traces on disk: TFRecord files of `tf.train.SequenceExample`, one per context.

Legend: C contexts of a batch, N decisions in all of them.

    context features   module, project, identifier (bytes); score (float)
    feature lists      every feature by LLVM's name, the advice by its name (`inlining_decision`), `reward`;
                       one tf.train.Feature per decision: int64_list, or float_list for LLVM's floats and doubles

`TRACE.meta.json` describes the trace (`collect.traces`). Both files appear when the trace is complete.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from compiler_opt import problem as problems
from compiler_opt.checked_values import Json
from compiler_opt.collect.traces import FORMAT, REMAKE, TraceContext, TraceDescription, meta_path
from compiler_opt.errors import OutputError, ProtocolError
from compiler_opt.export.release_model import EMBEDDED_MODELS
from compiler_opt.files import check_writable, nearest_folder, shown, write_atomically
from compiler_opt.tensor_spec import TensorSpec


@dataclasses.dataclass(frozen=True)
class TraceBatch:
    """N decisions of C contexts.

    Attributes:
      modules: name of each context's module.
      projects: name of that module's project.
      lengths: `[C]` int64, decisions of each context, which are concatenated in the arrays below.
      features: by name `[N, *shape]`, int64 or float32.
      action: `[N]`, int64 or float32.
    """

    modules: tuple[str, ...]
    projects: tuple[str, ...]
    lengths: np.ndarray
    features: Mapping[str, np.ndarray]
    action: np.ndarray

    def __len__(self) -> int:
        return len(self.action)


class TraceWriter(contextlib.AbstractContextManager["TraceWriter"]):
    """Writes a trace in the order of the modules' names.

        with TraceWriter(path) as writer:
            for ...:
                writer.add(context)              # in any order; spilled to disk
            writer.finish(scores, about)         # without this, no trace appears

    A score depends on the whole project, so it is known last. It is appended to its context's record as a protocol
    buffer of its own: concatenated messages are merged by definition of the format.
    """

    def __init__(self, path: Path):
        """Raises OutputError if the path cannot be written."""
        self._path = path
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        self._features: tuple[TensorSpec, ...] = ()
        self._advice: TensorSpec | None = None
        self._num_decisions = 0
        check_writable(path)
        # A file without a name: nothing of it is left behind, however this process ends.
        self._spill = tempfile.TemporaryFile(dir=nearest_folder(path.parent))  # noqa: SIM115 (closed in __exit__)

    @property
    def keys(self) -> Collection[tuple[str, str]]:
        """Module and identifier of every context added."""
        return self._places.keys()

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):  # `add` and `finish` report a full disk
            self._spill.close()

    def add(self, context: TraceContext) -> None:
        """Adds a context.

        Raises:
          OutputError: the disk is full.
          ProtocolError: its features differ from those of earlier contexts.
        """
        if self._advice is None:
            self._features, self._advice = context.features, context.advice
        elif (context.features, context.advice) != (self._features, self._advice):
            raise ProtocolError(f"trace: {context.module} has other features than the modules before it")
        record = _encoded_context(context)
        try:
            place = self._spill.seek(0, os.SEEK_END)
            self._spill.write(record)
        except OSError as error:
            raise self._failed(error) from error
        self._places[context.module, context.identifier] = (place, len(record))
        self._num_decisions += len(context.action)

    def finish(self, scores: Mapping[tuple[str, str], float], about: Mapping[str, Any]) -> None:
        """Writes the trace and its description.

        Args:
          scores: by module and identifier.
          about: more facts for the description, such as compiler and corpus; JSON values.

        Raises:
          OutputError: the trace cannot be written; an earlier one is untouched.
          ProtocolError: no context was added.
        """
        if self._advice is None:
            raise ProtocolError("trace: none of the modules has any decisions; nothing is written")
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            with tf.io.TFRecordWriter(str(partial)) as file:
                for key, (place, num_bytes) in sorted(self._places.items()):
                    self._spill.seek(place)
                    file.write(self._spill.read(num_bytes) + _encoded_score(scores[key]))
            description = {
                "format": FORMAT,
                "features": [spec.to_json() for spec in self._features],
                "advice": self._advice.to_json(),
                "num_contexts": len(self._places),
                "num_decisions": self._num_decisions,
                "trace_bytes": partial.stat().st_size,
                **about,
            }
            os.replace(partial, self._path)
            write_atomically(meta_path(self._path), json.dumps(description, indent=2).encode() + b"\n")
        except (OSError, tf.errors.OpError) as error:
            raise self._failed(error) from error
        finally:
            partial.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> OutputError:
        reason = getattr(error, "strerror", None) or getattr(error, "message", str(error)).splitlines()[0]
        return OutputError(
            f"{self._path}: cannot be written: {reason}; what was there before is untouched; "
            "free space or choose another folder"
        )


def _encoded_context(context: TraceContext) -> bytes:
    """A context as a serialised SequenceExample without its score."""
    example = tf.train.SequenceExample()
    for key in ("module", "project", "identifier"):
        example.context.feature[key].bytes_list.value.append(getattr(context, key).encode("utf-8", "surrogateescape"))
    columns = {**context.values, context.advice.name: context.action, "reward": context.reward}
    for name, values in columns.items():
        example.feature_lists.feature_list[name].MergeFromString(_encoded_list(values))
    record: bytes = example.SerializeToString(deterministic=True)
    return record


def _encoded_list(values: np.ndarray) -> bytes:
    """A FeatureList with one Feature per row of `[T, ...]`.

    Most values recur, and building a Feature in Python takes ten times longer than looking up its bytes.
    """
    encoded = _encoded_feature
    if values.dtype.kind == "f" and values.size:
        # Floats rarely recur, but Features of the same length differ only in the bytes of their numbers.
        rows = np.ascontiguousarray(values.reshape(len(values), -1), "<f4").view(np.uint8)
        zeros = np.frombuffer(encoded(*[0.0] * (rows.shape[1] // 4)), np.uint8)
        before = np.broadcast_to(zeros[: -rows.shape[1]], (len(rows), len(zeros) - rows.shape[1]))
        return np.concatenate([before, rows], axis=1).tobytes()
    if values.ndim == 1:
        return b"".join([encoded(value) for value in values.tolist()])
    return b"".join([encoded(*row) for row in values.reshape(len(values), -1).tolist()])


@functools.lru_cache(maxsize=1 << 16, typed=True)
def _encoded_feature(*values: int | float) -> bytes:
    feature = tf.train.Feature()
    if isinstance(values[0], float):
        feature.float_list.value.extend(values)
    else:
        feature.int64_list.value.extend(values)
    encoded: bytes = tf.train.FeatureList(feature=[feature]).SerializeToString()
    return encoded


def _encoded_score(score: float) -> bytes:
    example = tf.train.SequenceExample()
    example.context.feature["score"].float_list.value.append(score)
    encoded: bytes = example.SerializeToString()
    return encoded


class Trace(TraceDescription):
    """A trace on disk, read as a stream.

    Without a description, as other tools write it, its contexts are numbered and belong to one project.
    """

    def __init__(self, path: Path, *others: Path):
        """Reads the descriptions, see `TraceDescription`; makes them for files that have none."""
        super().__init__(path, *others, describe=describe)

    def batches(self, features: Sequence[str] | None = None, contexts_per_batch: int = 16) -> Iterator[TraceBatch]:
        """All decisions in the order of the file, a few contexts at a time.

        Takes memory for twice `contexts_per_batch` contexts as large as the largest in the batch.

        Args:
          features: names of those to read; all by default.
          contexts_per_batch: C, contexts that are parsed together.

        Raises:
          ProtocolError: the trace is damaged, or lacks a feature; the message names it.
        """
        specs = {spec.name: spec for spec in self.features}
        names = tuple(specs) if features is None else tuple(features)
        missing = [name for name in names if name not in specs]
        if missing:
            raise ProtocolError(f"{self.path}: the trace lacks the features {', '.join(missing)}; {REMAKE}")
        parse = _parser([specs[name] for name in names], self.advice, bool(self.undescribed))
        dataset = (
            tf.data.TFRecordDataset([str(path) for path in self.paths])
            .batch(contexts_per_batch)
            .map(parse, num_parallel_calls=2, deterministic=True)
            .prefetch(1)
        )
        num_read = 0
        try:
            for modules, projects, lengths, decisions in dataset.as_numpy_iterator():
                numbered = enumerate(modules, num_read)
                num_read += len(modules)
                yield TraceBatch(
                    modules=tuple(name.decode("utf-8", "surrogateescape") or f"#{index}" for index, name in numbered),
                    projects=tuple(name.decode("utf-8", "surrogateescape") for name in projects),
                    lengths=lengths,
                    features={name: decisions[name] for name in names},
                    action=decisions[self.advice.name],
                )
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise ProtocolError(f"{self.path}: damaged ({_reason(error)}); {REMAKE}") from error


def describe(path: Path) -> dict[str, Json]:
    """Describes a trace by its records, as `TRACE.meta.json` would; the name of its advice gives the problem.

    Raises:
      ProtocolError: it is not a TFRecord file of SequenceExamples that have such advice.
    """
    advices = {model.advice.name: problem for problem, model in EMBEDDED_MODELS.items()}
    specs: dict[str, dict[str, Json]] = {}
    num_contexts = num_decisions = 0
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            lists = tf.train.SequenceExample.FromString(record).feature_lists.feature_list
            length = max((len(lists[name].feature) for name in advices if name in lists), default=0)
            num_contexts += 1
            num_decisions += length
            if length and not specs:
                specs = {name: _spec(name, lists[name].feature[0]).to_json() for name in lists if lists[name].feature}
    except (tf.errors.OpError, DecodeError) as error:
        raise ProtocolError(f"{path}: expected a trace, found something else ({_reason(error)}); {REMAKE}") from None
    found = [name for name in specs if name in advices]
    if len(found) != 1:
        raise ProtocolError(
            f"{path}: expected decisions named {' or '.join(sorted(advices))}, found the names "
            f"{shown(', '.join(specs))}; {REMAKE}"
        )
    problem = problems.load(advices[found[0]])
    # Policies may not observe these.
    advisor = problem.decision.advisor
    hidden = {"reward", *found, advisor.default_feature, advisor.plugin_default_feature}
    return {
        "format": FORMAT,
        "problem": problem.name,
        "features": [specs[name] for name in sorted(specs) if name not in hidden],
        "advice": specs[found[0]],
        "num_contexts": num_contexts,
        "num_decisions": num_decisions,
        "trace_bytes": path.stat().st_size,
    }


def _spec(name: str, feature: tf.train.Feature) -> TensorSpec:
    """The spec of a feature by its values in one decision."""
    is_float = feature.WhichOneof("kind") == "float_list"
    size = len(feature.float_list.value if is_float else feature.int64_list.value)
    return TensorSpec(name, np.dtype("f4" if is_float else "i8"), () if size == 1 else (size,))


def _parser(features: Sequence[TensorSpec], advice: TensorSpec, is_undescribed: bool) -> Callable[[tf.Tensor], Any]:
    """Serialised contexts `[C]` to modules `[C]`, projects `[C]`, lengths `[C]` and decisions, see `TraceBatch`.

    With `is_undescribed`, contexts may lack names and decisions.
    """
    columns = {
        spec.name: tf.io.FixedLenSequenceFeature(
            spec.shape, tf.float32 if spec.dtype.kind == "f" else tf.int64, allow_missing=is_undescribed
        )
        for spec in (*features, advice)
    }
    default = "" if is_undescribed else None
    keys = {name: tf.io.FixedLenFeature((), tf.string, default) for name in ("module", "project")}

    @tf.autograph.experimental.do_not_convert
    def parse(records: tf.Tensor) -> Any:
        context, padded, lengths = tf.io.parse_sequence_example(records, keys, columns)
        length = lengths[advice.name]
        # A graph of few nodes: it takes longer to build than to run.
        differs = tf.reduce_any(tf.stack(list(lengths.values())) != length, axis=-1)
        names = tf.strings.reduce_join(tf.boolean_mask(list(lengths), differs), separator=", ")
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(differs), ["length of ", names])]):
            # [T, 2]: where the padded arrays `[C, longest]` hold decisions.
            places = tf.where(tf.sequence_mask(length))
        decisions = {name: tf.gather_nd(values, places) for name, values in padded.items()}
        return context["module"], context["project"], length, decisions

    return parse


def _reason(error: Exception) -> str:
    """TensorFlow's message without the place in its graph."""
    first_line = str(getattr(error, "message", error)).splitlines()[0]
    return re.sub(r"\{\{.*?\}\} |.*Iterator::[^ ]*: | \[Op:.*", "", first_line)[:200]
