"""Which options of LLVM's passes do anything, and what each gains: every one tried alone, against plain compilations.

    plain:     all modules, for the copies of functions that the linker keeps one of
    detecting: each candidate on a few modules: does any object change?
    measuring: those that change something, on a sample of modules of every project: bytes of each function

Results are in a folder, and an interrupted screening continues there:

    screening.json   conditions: compiler, corpus, sample
    plain.npz        of each function of the sample: module, plain bytes, weight
    detected.jsonl   one line for each candidate: how many objects change, by how many bytes, failures
    measured.jsonl   one line for each candidate that changes something: by project, plain and changed bytes
    functions/       for each of these, `[F]` changes in bytes of the functions of plain.npz (`functions_file`)

A candidate is one option, or several with spaces between them.
"""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tqdm import tqdm

from compiler_opt.array_files import save_arrays
from compiler_opt.collect.rollout import check_failures
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.files import parse_json, write_json, write_text
from compiler_opt.kept_results import RecordFile, check_conditions
from compiler_opt.llvm.pass_options import PassOption, parse_option
from compiler_opt.objectives.linked_text import comdat_copies, function_weights, weighted_text_bytes
from compiler_opt.pass_options.candidates import further
from compiler_opt.pass_options.measuring import Compiled, MeasuredObject, compile_all

CONDITIONS_FILE, PLAIN_FILE, DETECTED_FILE, MEASURED_FILE = (
    "screening.json",
    "plain.npz",
    "detected.jsonl",
    "measured.jsonl",
)
FUNCTIONS_FOLDER = "functions"

_DETAILS = re.compile(r" \(command: |(?<=SIG\w{4})[:( ]|(?<=SIG\w{3})[:( ]|(?<=SIG\w{2})[:( ]")

_MAX_DETECTING_BYTES = 100_000
"""Of bitcode: larger modules take too long for thousands of candidates."""
_WORTH_REFINING = 2e-4
"""By how much of the text an extreme value has to change the detecting modules, for others to be tried."""


@dataclasses.dataclass(frozen=True)
class ScreeningSettings:
    """How to screen.

    Attributes:
      detecting: modules on which candidates are tried first, of each language.
      modules_per_project: modules of each project on which those that change something are measured.
      seed: of the sample.
    """

    detecting: int = 4
    modules_per_project: int = 4
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Detected:
    """What a candidate does to the detecting modules.

    Attributes:
      option: the candidate.
      changed: how many objects differ from plain ones.
      relative: change of the sum of their text, of those that compile.
      cpu: CPU seconds over those of plain compilations.
      failures: why modules failed, by module.
    """

    option: str
    changed: int
    relative: float
    cpu: float
    failures: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a candidate does to the sample.

    Attributes:
      option: the candidate.
      projects: by project, weighted bytes of text and of code: plain, and with the option.
      cpu: CPU seconds over those of plain compilations.
      failures: why modules failed, by module; these count as plain.
    """

    option: str
    projects: dict[str, tuple[float, float, float, float]]
    cpu: float
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    def text(self, project: str) -> float:
        """Relative change of a project's text."""
        plain, changed, _, _ = self.projects[project]
        return changed / plain - 1

    def code(self, project: str) -> float:
        """Relative change of a project's code."""
        _, _, plain, changed = self.projects[project]
        return changed / plain - 1


class Screening:
    """A screening in progress, in a folder."""

    def __init__(
        self,
        corpus: Corpus,
        pool: WorkerPool,
        identity: Mapping[str, Any],
        folder: Path,
        settings: ScreeningSettings = ScreeningSettings(),
        progress: "tqdm[NoReturn] | None" = None,
    ):
        """Compiles the corpus plainly.

        Args:
          corpus: projects to train on.
          pool: compiles and measures `WHOLE_OBJECTS`.
          identity: the compiler's.
          folder: of the results.
          settings: how to screen.
          progress: a bar that is set to the compilations of each part, and shows them.

        Raises:
          ConfigError: the folder has a screening under other conditions.
          CorpusError: most modules fail to compile.
        """
        self._pool, self._folder, self._progress = pool, folder, progress
        self._check_conditions(corpus, identity, settings)
        plain = {each.module: each for each in self._compile(corpus.modules, [()])}
        failures = {name: each.failure for name, each in plain.items() if each.failure is not None}
        check_failures(failures, len(plain))
        self._plain = {name: each.object for name, each in plain.items() if each.object is not None}
        self._plain_cpu_s = {name: each.cpu_s for name, each in plain.items()}
        # With the copies in all modules, bytes of single ones count as they do in the linked program.
        self._copies = {
            project: comdat_copies(self._plain[module.name].sizes for module in modules if module.name in self._plain)
            for project, modules in corpus.projects().items()
        }
        whole = [module for module in corpus.modules if module.name in self._plain]
        sample = dataclasses.replace(corpus, modules=tuple(whole)).sample(settings.modules_per_project, settings.seed)
        self.sample = sample.modules
        self.detecting = _detecting(sample.modules, settings.detecting)
        self._functions = [
            (module, name) for module in self.sample for name in sorted(self._plain[module.name].sizes.functions)
        ]
        self._save_plain()

    def detect(self, candidates: Sequence[str]) -> list[Detected]:
        """Tries candidates on the detecting modules, except those that have been."""
        file = RecordFile(self._folder / DETECTED_FILE, Detected)
        known = {each.option: each for each in file.records}
        left = [option for option in candidates if option not in known]
        for option, compiled in self._by_option(self.detecting, left):
            whole = [each for each in compiled if each.object is not None]
            before = sum(self._plain[each.module].sizes.text_bytes for each in whole)
            detected = Detected(
                option=option,
                changed=sum(_of(each).digest != self._plain[each.module].digest for each in whole),
                relative=sum(_of(each).sizes.text_bytes for each in whole) / before - 1 if before else 0.0,
                cpu=self._relative_cpu(whole),
                failures=_failures(compiled),
            )
            file.append([detected])
            known[option] = detected
        return [known[option] for option in candidates]

    def measure(self, candidates: Sequence[str]) -> list[Measured]:
        """Measures candidates on the sample, except those that have been."""
        file = RecordFile(self._folder / MEASURED_FILE, Measured)
        known = {each.option: each for each in file.records}
        left = [option for option in candidates if option not in known]
        for option, compiled in self._by_option(self.sample, left):
            objects = {each.module: each.object for each in compiled if each.object is not None}
            measured = Measured(
                option=option,
                projects=self._by_project(objects),
                cpu=self._relative_cpu([each for each in compiled if each.object is not None]),
                failures=_failures(compiled),
            )
            self._save_functions(option, objects)
            file.append([measured])
            known[option] = measured
        return [known[option] for option in candidates]

    def _check_conditions(self, corpus: Corpus, identity: Mapping[str, Any], settings: ScreeningSettings) -> None:
        digest = hashlib.sha256()
        for module in corpus.modules:
            digest.update(module.content_digest())
        conditions = {
            "compiler": dict(identity),
            "corpus": digest.hexdigest(),
            "settings": dataclasses.asdict(settings),
            "projects": {name: modules[0].language() for name, modules in corpus.projects().items()},
        }
        check_conditions(self._folder / CONDITIONS_FILE, conditions)

    def _compile(self, modules: Sequence[Module], sets: Sequence[Sequence[str]]) -> Iterator[Compiled]:
        if self._progress is not None:
            self._progress.reset(total=len(modules) * len(sets))
        for compiled in compile_all(self._pool, modules, sets):
            if self._progress is not None:
                self._progress.update()
            yield compiled

    def _by_option(self, modules: Sequence[Module], options: Sequence[str]) -> Iterator[tuple[str, Sequence[Compiled]]]:
        """All modules of an option as soon as they are done."""
        waiting: dict[str, list[Compiled]] = collections.defaultdict(list)
        for each in self._compile(modules, [option.split() for option in options]):
            option = " ".join(each.options)
            waiting[option].append(each)
            if len(waiting[option]) == len(modules):
                yield option, waiting.pop(option)

    def _relative_cpu(self, compiled: Sequence[Compiled]) -> float:
        plain_s = sum(self._plain_cpu_s[each.module] for each in compiled)
        return sum(each.cpu_s for each in compiled) / plain_s if plain_s else 1.0

    def _by_project(self, objects: Mapping[str, MeasuredObject]) -> dict[str, tuple[float, float, float, float]]:
        sums: dict[str, np.ndarray] = collections.defaultdict(lambda: np.zeros(4))
        for module in self.sample:
            plain = self._plain[module.name]
            changed = objects.get(module.name, plain)
            weighted = [weighted_text_bytes(each.sizes, self._copies[module.project]) for each in (plain, changed)]
            sums[module.project] += (*weighted, plain.code_bytes, changed.code_bytes)
        return {project: tuple(map(float, each)) for project, each in sums.items()}  # type: ignore[misc]

    def _save_plain(self) -> None:
        weights = {
            module.name: function_weights(self._plain[module.name].sizes, self._copies[module.project])
            for module in self.sample
        }
        number = {module.name: index for index, module in enumerate(self.sample)}
        arrays = {
            "module": np.array([number[module.name] for module, _ in self._functions], np.int32),
            "bytes": np.array(
                [self._plain[module.name].sizes.functions[name] for module, name in self._functions], np.int32
            ),
            "weight": np.array([weights[module.name][name] for module, name in self._functions], np.float32),
        }
        save_arrays(self._folder / PLAIN_FILE, arrays, compressed=True)
        modules = [{"module": module.name, "project": module.project} for module in self.sample]
        write_json(self._folder / "sample.json", modules)
        lines = "".join(f"{module.name}\t{name}\n" for module, name in self._functions)
        write_text(self._folder / "functions.tsv", lines.encode(errors="backslashreplace").decode())

    def _save_functions(self, option: str, objects: Mapping[str, MeasuredObject]) -> None:
        """A function that is gone counts as 0 bytes; one of a module that failed as plain."""
        changes = np.zeros(len(self._functions), np.int32)
        for index, (module, name) in enumerate(self._functions):
            plain = self._plain[module.name].sizes.functions
            if module.name in objects:
                changes[index] = objects[module.name].sizes.functions.get(name, 0) - plain[name]
        path = functions_file(self._folder, option)
        path.parent.mkdir(exist_ok=True)
        save_arrays(path, {"change": changes}, compressed=True)


def functions_file(folder: Path, option: str) -> Path:
    """Where a screening in a folder keeps what a candidate does to functions."""
    return folder / FUNCTIONS_FOLDER / f"{hashlib.sha256(option.encode()).hexdigest()[:24]}.npz"


def worth_measuring(detected: Iterable[Detected], modules: int) -> list[str]:
    """Those that change something, and with which at most half of the modules failed; the most promising first."""
    useful = [each for each in detected if each.changed and 2 * len(each.failures) <= modules]
    return [each.option for each in sorted(useful, key=lambda each: (each.relative, each.option))]


def worth_refining(detected: Iterable[Detected], options: Mapping[str, PassOption]) -> list[str]:
    """Further values of numbers of which an extreme changes the text noticeably."""
    names = dict.fromkeys(parse_option(each.option)[0] for each in detected if abs(each.relative) > _WORTH_REFINING)
    return [option for name in names for option in further(options[name])]


def read_detected(folder: Path) -> list[Detected]:
    """What has been tried in the folder of a screening, so far."""
    return RecordFile(folder / DETECTED_FILE, Detected).records


def read_measured(folder: Path) -> list[Measured]:
    """What has been measured in the folder of a screening, so far."""
    return RecordFile(folder / MEASURED_FILE, Measured).records


def read_languages(folder: Path) -> dict[str, str]:
    """The projects of the screening in a folder, and their languages; raises ConfigError if there is none."""
    path = folder / CONDITIONS_FILE
    try:
        return dict(parse_json(path.read_bytes())["projects"])
    except (OSError, ValueError, TypeError, KeyError):
        raise ConfigError(f"{path}: expected what screen_options has written, found something else") from None


def _detecting(sample: Sequence[Module], per_language: int) -> list[Module]:
    """The largest modules of different projects below a limit, so many in each language."""
    largest: dict[str, Module] = {}
    fitting = [module for module in sample if module.bitcode_bytes() <= _MAX_DETECTING_BYTES]
    for module in sorted(fitting, key=lambda module: (-module.bitcode_bytes(), module.name)):
        largest.setdefault(module.project, module)
    chosen: dict[str, list[Module]] = collections.defaultdict(list)
    for module in largest.values():
        if len(chosen[module.language()]) < per_language:
            chosen[module.language()].append(module)
    return [module for modules in chosen.values() for module in modules]


def _failures(compiled: Iterable[Compiled]) -> dict[str, str]:
    """Why modules failed, without commands and addresses, which differ between machines."""
    reasons = {each.module: each.failure.removeprefix(f"{each.module}: ") for each in compiled if each.failure}
    return {module: _DETAILS.split(reason, maxsplit=1)[0] for module, reason in reasons.items()}


def _of(compiled: Compiled) -> MeasuredObject:
    assert compiled.object is not None
    return compiled.object
