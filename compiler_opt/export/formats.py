"""Writes policies in the formats that LLVM reads, to deploy (`docs/deploy_forms.md`)."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.export.release_model import (
    EMBEDDED_MODELS,
    SAVED_MODEL_FILE,
    EmbeddedModel,
    write_aot,
    write_release_model,
)
from compiler_opt.files import check_folder_writable, parse_json, read_regular, write_atomically
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.advisors import REBUILT_DEFAULT
from compiler_opt.llvm.ir2vec import components
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.policies.model_card import CHECKSUM_FACT
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.native import BLOB_SYMBOL, NATIVE_FILE, embedded_source, include_directory
from compiler_opt.tensorflow_loading import load_tensorflow

_MAX_SUMMARY_BYTES = 1 << 28


def export_policy(
    policy_dir: Path,
    output: Path,
    formats: list[str],
    *,
    evaluation: Path | None = None,
    margin: float | None = None,
) -> dict[str, list[Path]]:
    """Exports the policy in a folder in some of `FORMATS`, together with its model card; returns each format's files.

    Args:
      policy_dir: the policy's folder.
      output: the folder to write into; other files in it stay.
      formats: names among `FORMATS`.
      evaluation: folder of an evaluation of this policy, whose results the card is to include.
      margin: replaces the policy's margin, see `NetworkWeights`.

    Raises:
      PolicyError: there is no intact policy, or it has no such format.
      ConfigError: a format is unknown, two write the same files, or the evaluation is of another policy.
      ToolchainError: a tool is missing or fails.
      OutputError: a file cannot be written.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        found = repr(unknown[0]) if unknown else "none"
        raise ConfigError(f"--format: expected some of {', '.join(FORMATS)}; found {found}")
    if {"release_model", "aot"} <= set(formats):
        raise ConfigError("--format: release_model and aot write files of the same names; expected one of them")
    weights = NetworkWeights.load(policy_dir).with_margin(margin)
    card = weights.card()
    if evaluation is not None:
        card = card.with_results(evaluation_results(evaluation, weights.checksum()))
    problem = _problem_with(formats, weights, policy_dir)
    check_folder_writable(output)
    export = _Export(weights, problem, output)
    written = {name: FORMATS[name](export) for name in formats}
    card.save(output)
    return written


def export_selectable(policies: Mapping[str, Path], output: Path, *, margin: float | None = None) -> list[Path]:
    """Exports several policies as one release-mode class, in which the compiler selects one by its name.

    Args:
      policies: the folders by the policies' names. Each has its model card in a folder of its name.
      output: the folder to write into; other files in it stay.
      margin: replaces the policies' margins.

    Returns:
      the class's files.

    Raises:
      PolicyError: a policy is not intact, or has no such form; or they are for several problems.
      ToolchainError: a tool is missing or fails.
      OutputError: a file cannot be written.
    """
    weights = {name: NetworkWeights.load(folder).with_margin(margin) for name, folder in policies.items()}
    by_name = {name: _problem_with(["release_model"], weights[name], folder) for name, folder in policies.items()}
    found = {problem.name: problem for problem in by_name.values()}
    if len(found) > 1:
        raise PolicyError(f"--policy_path: expected policies for one problem, found some for {' and '.join(found)}")
    [problem] = found.values()
    check_folder_writable(output)
    written = write_release_model(weights, problem.decision, EMBEDDED_MODELS[problem.decision.advisor.problem], output)
    for name, each in weights.items():
        (output / name).mkdir(exist_ok=True)
        each.card().save(output / name)
    return written


def _problem_with(formats: Sequence[str], weights: NetworkWeights, policy_dir: Path) -> AnyProblem:
    """A policy's problem. Raises PolicyError if it has none, or the policy cannot be exported in one of the formats."""
    problem = problems.recorded(weights.metadata, str(policy_dir))
    possible = problem.decision.action_space.formats(weights)
    impossible = [form for form in formats if form not in possible]
    if impossible and components(weights.features):
        raise PolicyError(
            f"{policy_dir}: observes IR2Vec embeddings, which the format {impossible[0]} cannot represent; expected "
            "saved_model or aot, or a policy that was trained without them"
        )
    if impossible and weights.is_recurrent:
        raise PolicyError(
            f"{policy_dir}: has a recurrent layer (LSTM), but LLVM does not tell a model in the format {impossible[0]} "
            "where a module begins; expected native or cpp, compiler_opt deploy, or a policy that was trained "
            "with network.lstm_units = 0"
        )
    if impossible and (computed := plugin_features.among(weights.features)):
        raise PolicyError(
            f"{policy_dir}: observes features that only our plugin computes ({', '.join(computed)}), so it cannot be "
            f"exported in the format {impossible[0]}; expected {' or '.join(possible)}, compiler_opt deploy, "
            "or a policy that was trained on LLVM's features"
        )
    if impossible and weights.margin:
        raise PolicyError(
            f"{policy_dir}: has the margin {weights.margin:g}, but does not observe {' and '.join(REBUILT_DEFAULT)}, "
            f"from which the format {impossible[0]} rebuilds the default decision; expected {' or '.join(possible)}, "
            "or --margin=0, with which the network alone decides"
        )
    if impossible:
        raise PolicyError(
            f"{policy_dir}: a policy for {problem.name} cannot be exported in the format {impossible[0]}; "
            + (
                f"expected some of {', '.join(possible)}"
                if possible
                else "compiler_opt deploy takes its folder as it is"
            )
        )
    # Refuses a network of another shape, or a margin that cannot be.
    problem.decision.policy(weights, origin=str(policy_dir))
    return problem


def evaluation_results(directory: Path, checksum: str) -> list[dict[str, Any]]:
    """Results of an evaluation, as a model card shows them. Raises ConfigError if it is not of this one policy."""
    path = directory / "summary.json"
    try:
        summary = parse_json(read_regular(path, _MAX_SUMMARY_BYTES))
        facts, name = summary["provenance"], summary["policy"]
        found, total = facts.get(CHECKSUM_FACT), summary["totals"][name]
        result = {
            "corpus": facts["Corpus"],
            "compiler": facts["Compiler"],
            "optimisation": facts["Optimisation"],
            "modules": summary["num_modules"],
            "linked text against the default": f"{total['linked_change']:+.2%}",
            "mean of the projects' linked text": f"{total['linked']['mean']['value']:+.2%}",
            "linked text by project": ", ".join(_projects(summary["projects"], name)),
            "objects' text against the default": f"{total['objects']['total']['value']:+.2%}",
            "objects smaller, bigger, the same": ", ".join(
                str(total["objects"][key]) for key in ("wins", "losses", "ties")
            ),
            "failures": total["num_failures"],
            "measured at": summary["started_at"],
        }
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give --evaluation the folder that evaluate wrote") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not an evaluation of one policy ({error!r}); evaluate again") from error
    if found != checksum:
        raise ConfigError(
            f"{path}: measures other weights (checksum {str(found or 'not recorded')[:12]}, this policy's is "
            f"{checksum[:12]}); evaluate this policy"
        )
    return [result]


def _projects(projects: Sequence[Mapping[str, Any]], policy: str) -> Iterator[str]:
    """`NAME -1.23%` of each project that was linked."""
    for project in projects:
        change = project["policies"][policy]["linked_change"]
        if change is not None:
            yield f"{project['project']} {change:+.2%}"


@dataclasses.dataclass(frozen=True)
class _Export:
    """A policy to be written in one of the formats."""

    weights: NetworkWeights
    problem: AnyProblem
    output: Path

    @property
    def model(self) -> EmbeddedModel:
        return EMBEDDED_MODELS[self.problem.decision.advisor.problem]

    def write(self, contents: Mapping[str, bytes]) -> list[Path]:
        """Writes files by name; returns their paths."""
        for name, content in contents.items():
            path = self.output / name
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, content)
        return [self.output / name for name in contents]

    def native(self) -> list[Path]:
        return self.write({NATIVE_FILE: self.problem.decision.native_form(self.weights)})

    def cpp(self) -> list[Path]:
        source = embedded_source(self.problem.decision.native_form(self.weights)).encode()
        headers = ("policy_network.h", *self.problem.decision.action_space.native_model.headers)
        contents = {header: (include_directory() / header).read_bytes() for header in headers}
        return self.write({f"{BLOB_SYMBOL}.cpp": source, **contents})

    def release_model(self) -> list[Path]:
        return write_release_model({"": self.weights}, self.problem.decision, self.model, self.output)

    def tflite(self) -> list[Path]:
        load_tensorflow()
        from compiler_opt.spaces.heads.tflite import tflite_files

        space, model = self.problem.decision.action_space, self.model
        return self.write(tflite_files(self.weights, space, model.advice.name, model.features))

    def saved_model(self) -> list[Path]:
        with self._saved_model_folder() as folder:
            files = {
                str(path.relative_to(folder)): path.read_bytes()
                for path in (folder / SAVED_MODEL_FILE, *sorted((folder / "variables").iterdir()))
            }
        return self.write(files)

    def aot(self) -> list[Path]:
        with self._saved_model_folder() as folder:
            return write_aot(folder, self.model, self.output)

    @contextlib.contextmanager
    def _saved_model_folder(self) -> Iterator[Path]:
        """A folder with a SavedModel made of the weights; one that came with them may hold any operation."""
        load_tensorflow()
        from compiler_opt.export.saved_model import save_policy

        with scratch_directory() as scratch:
            space = self.problem.decision.action_space
            save_policy(scratch / "policy", self.weights, space, self.model.advice.name, self.model.features)
            yield scratch / "policy"


FORMATS: Mapping[str, Callable[[_Export], list[Path]]] = {
    "native": _Export.native,
    "cpp": _Export.cpp,
    "release_model": _Export.release_model,
    "saved_model": _Export.saved_model,
    "tflite": _Export.tflite,
    "aot": _Export.aot,
}
