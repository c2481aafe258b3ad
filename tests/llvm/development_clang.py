"""Stands in for a clang that was built with TFLite, of which no distribution has one: `make` makes such a program.

It takes the options of the development mode as LLVM does (`DevelopmentModeInlineAdvisor.cpp`,
`MLRegAlloc{Evict,Priority}Advisor.cpp`, `ModelUnderTrainingRunner.cpp`, `TFUtils.cpp`), evaluates `model.tflite` in
TFLite's interpreter, and writes the training log on its own, not by the code under test. An installed clang compiles;
it hands its decisions over the interactive channel. What cannot be had from that one is made up: the default evictions
and priorities are rebuilt ones, and scores come from the remarks.

    python development_clang.py CONFIG.json [clang's arguments]
"""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from compiler_opt.llvm.advisors import ADVISORS, INLINING, REGALLOC_EVICTION, AdvisorFlags, mllvm
from compiler_opt.llvm.interactive import InteractiveResult, compile_interactively, llvm_channel
from compiler_opt.llvm.remarks import REGALLOC_PASS, parse_costs
from compiler_opt.llvm.remarks import options as remark_options
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header, parse_header

Decision = tuple[int | float, list[bytes]]
"""The advice, and the bytes of what else the model tells."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What kind of compiler it is.

    Attributes:
      clang: which compiles.
      headers: for each problem the header of a log, which LLVM writes even when nothing is decided.
      default_slot: the feature that carries the default decision of inlining.
      behaviour: how it misbehaves: `truncated`, `empty`, `missing`, `other_compiler`, `dies`, `no_features`.
      embedded: the folder of the model that is built into it for inlining.
    """

    clang: str
    headers: dict[str, Any]
    default_slot: str
    behaviour: str = ""
    embedded: str = ""


def make(folder: Path, toolchain: Toolchain, behaviour: str = "", embedded: Path | None = None) -> Path:
    """An executable `clang` in a new folder."""
    folder.mkdir()
    bug = toolchain.problems[INLINING.problem].default_in_callee_slot
    slot = INLINING.default_slot if bug else INLINING.default_feature
    headers = {
        name: {"features": [spec.to_json() for spec in support.features], "advice": support.advice.to_json()}
        for name, support in toolchain.problems.items()
        if support.advice is not None
    }
    config = Config(str(toolchain.clang), headers, str(slot), behaviour, str(embedded or ""))
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    clang = folder / "clang"
    root = Path(__file__).parents[2]
    clang.write_text(
        f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} {Path(__file__).resolve()} {folder}/config.json "$@"\n'
    )
    clang.chmod(0o755)
    return clang


class Options:
    """A command line: LLVM's development options apart from the rest."""

    def __init__(self, arguments: Sequence[str]):
        self.rest: list[str] = []
        self._values: dict[str, str] = {}
        known = {
            name
            for flags in ADVISORS.values()
            for name in (flags.enable, flags.training_log, flags.model_under_training)
        }
        words = iter(arguments)
        for word in words:
            value = next(words, "") if word == "-mllvm" else ""
            name, _, content = value.partition("=")
            if name in known:
                self._values[name] = content
            else:
                self.rest += [word, value] if value else [word]

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def as_clang_has_them(self) -> list[str]:
        """All of them, but those that only exist here."""
        enables = [flags.enable for flags in ADVISORS.values()]
        return [*self.rest, *mllvm(f"{name}={self._values[name]}" for name in enables if name in self._values)]

    def value_of(self, option: str) -> str | None:
        """What follows one of the rest."""
        return self.rest[self.rest.index(option) + 1] if option in self.rest else None


class Log:
    """LLVM's `Logger`, from the description in `llvm/Analysis/Utils/TrainingLogger.h`."""

    def __init__(self, path: str, features: list[dict[str, Any]], score: dict[str, Any] | None):
        self._file = Path(path).open("wb")  # noqa: SIM115 (closed at the program's end, as LLVM's is)
        self._indices: dict[str, int] = {}
        self._context = ""
        header: dict[str, Any] = {"features": features} if score is None else {"features": features, "score": score}
        self._line(header)

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")

    def switch_context(self, name: str) -> None:
        self._context = name
        self._line({"context": name})

    def observation(self, tensors: Sequence[bytes]) -> None:
        index = self._indices.get(self._context, -1) + 1
        self._indices[self._context] = index
        self._line({"observation": index})
        self._file.write(b"".join(tensors) + b"\n")

    def reward(self, content: bytes) -> None:
        self._line({"outcome": self._indices[self._context]})
        self._file.write(content + b"\n")


class Model:
    """LLVM's `TFModelEvaluator`."""

    def __init__(self, folder: Path, decision: str, header: Header):
        entries = json.loads((folder / "output_spec.json").read_text())
        if not entries or entries[0]["logging_name"] != decision:
            fail(f"The first output spec must describe the decision tensor, and must have the logging_name {decision}")
        module = _tflite()
        content = (folder / "model.tflite").read_bytes()
        # 3: builtin operations alone, without delegates, as LLVM builds it.
        self._interpreter = module.CreateWrapperFromBuffer(content, 3, [], [], False, False, 1, False)
        self._interpreter.AllocateTensors()
        name = self._interpreter.TensorName
        inputs = {name(index, 0): index for index in self._interpreter.InputIndices()}
        outputs = {name(index, 0): index for index in self._interpreter.OutputIndices()}
        self._features: list[tuple[int, slice, Any]] = []
        begin = 0
        for spec in header.features:
            place = slice(begin, begin + spec.num_bytes)
            begin = place.stop
            index = inputs.pop(f"action_{spec.name}:{spec.port}", None)
            if index is not None:
                self._features.append((index, place, spec))
        for training_only in ("action_discount:0", "action_reward:0", "action_step_type:0"):
            inputs.pop(training_only, None)
        if inputs:
            fail("Required feature(s) have not been passed to the ML model")
        specs = [entry["tensor_spec"] for entry in entries]
        self._outputs = [outputs[f"{spec['name']}:{spec['port']}"] for spec in specs]
        self.extra_outputs = [
            {**spec, "name": entry["logging_name"]} for spec, entry in zip(specs[1:], entries[1:], strict=True)
        ]

    def __call__(self, observation: bytes) -> Decision:
        for index, place, spec in self._features:
            values = np.frombuffer(observation[place], spec.dtype).reshape(spec.shape)
            self._interpreter.SetTensor(index, values)
        self._interpreter.Invoke()
        advice, *others = [self._interpreter.GetTensor(index) for index in self._outputs]
        return advice.reshape(-1)[0].item(), [other.tobytes() for other in others]


def _tflite() -> ModuleType:
    """TFLite's interpreter out of TensorFlow's package, without the seconds that importing the latter takes."""
    package = importlib.util.find_spec("tensorflow")
    assert package is not None and package.submodule_search_locations
    name = "_pywrap_tensorflow_interpreter_wrapper"
    # Where in there depends on the release.
    [path] = (Path(package.submodule_search_locations[0]) / "lite/python").rglob(f"{name}.so")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


class Development:
    """One compilation in development mode."""

    def __init__(self, config: Config, options: Options, flags: AdvisorFlags, scratch: Path):
        self._config = config
        self._options = options
        self._flags = flags
        self._scratch = scratch
        self._told: list[Decision] = []
        self._model: Model | None = None

    def run(self) -> None:
        model = self._options.get(self._flags.model_under_training)
        log = self._options.get(self._flags.training_log)
        if not model and not log and self._flags != INLINING:
            fail("Regalloc development mode should be requested with at least logging enabled and/or a training model")
        if model:
            result = self._converse(lambda header: self._evaluate(Path(model), header))
        elif self._flags == INLINING:
            result = self._converse(self._feature(self._config.default_slot), include_default=True)
        else:
            result = self._converse(self._rebuilt_default)
        if not log:
            return
        defaults: list[int | float] = []
        if self._flags == INLINING and model:
            again = self._converse(self._replay(result.advice), include_default=True)
            assert again.header is not None
            defaults = again.header.decode(again.observations)[self._config.default_slot].reshape(-1).tolist()
        elif self._flags == INLINING:
            # The features of a run that was asked for the default may have it in the place of one of them.
            defaults = result.advice
            result = self._converse(self._replay(defaults))
        self._write(Path(log), result, defaults)

    def _converse(
        self, start: Callable[[Header], Callable[[bytes], int | float]], include_default: bool = False
    ) -> InteractiveResult:
        """Compiles; leaves as the compiler does when that fails."""
        arguments = list(self._options.rest)
        if self._flags != INLINING and self._remarks is None:
            arguments += [
                word
                for option in remark_options(str(self._scratch / "remarks"), REGALLOC_PASS)
                for word in ([option] if "-cc1" in arguments else ["-Xclang", option])
            ]
        result = compile_interactively(
            [self._config.clang, *arguments],
            connect=llvm_channel(self._flags, include_default=include_default),
            start_deciding=start,
            scratch=self._scratch,
        )
        if not result.process.ok:
            sys.exit(result.process.stderr_tail)
        return result

    @property
    def _remarks(self) -> str | None:
        return self._options.value_of("-opt-record-file")

    def _evaluate(self, folder: Path, header: Header) -> Callable[[bytes], int | float]:
        self._model = model = Model(folder, header.advice.name, header)

        def decide(observation: bytes) -> int | float:
            self._told.append(model(observation))
            return self._told[-1][0]

        return decide

    @staticmethod
    def _feature(name: str) -> Callable[[Header], Callable[[bytes], int | float]]:
        return lambda header: lambda observation: header.decode(observation)[name].reshape(-1)[0].item()

    @staticmethod
    def _replay(advice: Sequence[int | float]) -> Callable[[Header], Callable[[bytes], int | float]]:
        remaining = iter(advice)
        return lambda header: lambda observation: next(remaining)

    def _rebuilt_default(self, header: Header) -> Callable[[bytes], int | float]:
        if self._flags == REGALLOC_EVICTION:
            from compiler_opt.decisions.regalloc_eviction.rules import DefaultEviction

            return DefaultEviction().start(header, 0)
        return self._feature("li_size")(header)

    def _write(self, path: Path, result: InteractiveResult, defaults: Sequence[int | float]) -> None:
        """The training log."""
        if self._config.behaviour == "missing":
            return
        if self._config.behaviour == "empty":
            path.write_bytes(b"")
            return
        header = parse_header(json.dumps(self._config.headers[self._flags.problem]).encode())
        assert result.header in (header, None)
        features = [spec.to_json() for spec in header.features]
        if self._config.behaviour == "other_compiler":
            features[3] = {**features[3], "name": "feature_of_another_version"}
        extra = self._model.extra_outputs if self._model is not None else []
        advice = header.advice.to_json()
        default = [{**advice, "name": INLINING.default_feature}] if self._flags == INLINING else []
        reward = {"name": "reward", "type": "float", "port": 0, "shape": [1]}
        log = Log(str(path), [*features, *extra, *default, advice], None if default else reward)
        pack = header.advice.dtype.type
        size = header.observation_bytes
        scores = self._scores()
        contexts = result.contexts or ([("", 0)] if default else [])
        ends = [*(first for _, first in contexts), len(result.advice)][1:]
        for (context, first), end in zip(contexts, ends, strict=True):
            log.switch_context(context)
            for number in range(first, end):
                observation = result.observations[number * size : (number + 1) * size]
                if self._config.behaviour == "no_features":
                    observation = bytes(size)
                others = self._told[number][1] if self._told else []
                decisions = [pack(values[number]).tobytes() for values in (defaults, result.advice) if len(values)]
                log.observation([observation, *others, *decisions])
                if not default:
                    # Nothing, but for the last decision of a function: its score.
                    score = scores.get(context, 0.0) if number == end - 1 else 0.0
                    log.reward(np.float32(score).tobytes())
        del log
        if self._config.behaviour in ("truncated", "dies"):
            os.truncate(path, path.stat().st_size - 5)
        if self._config.behaviour == "dies":
            fail("stack smashed")

    def _scores(self) -> dict[str, float]:
        path = Path(self._remarks or self._scratch / "remarks")
        if self._flags == INLINING or not path.exists():
            return {}
        return {name: cost.spills + 4 * cost.reloads for name, cost in parse_costs(path.read_bytes()).items()}


def main(arguments: Sequence[str]) -> None:
    config = Config(**json.loads(Path(arguments[0]).read_text()))
    options = Options(arguments[1:])
    with tempfile.TemporaryDirectory() as scratch:
        for flags in ADVISORS.values():
            mode = options.get(flags.enable)
            channel = any(word.startswith(f"{flags.channel_base}=") for word in options.rest)
            if mode == "development":
                return Development(config, options, flags, Path(scratch)).run()
            if mode == "release" and not channel and flags == INLINING and config.embedded:
                options._values[flags.model_under_training] = config.embedded
                return Development(config, options, flags, Path(scratch)).run()
    sys.exit(subprocess.run([config.clang, *options.as_clang_has_them()]).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
