"""Every form of a policy, by name; `docs/deploy.md` tells what each is for."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.export.aot import write_aot
from compiler_opt.export.release_model import EMBEDDED_MODELS, EmbeddedModel, write_release_model
from compiler_opt.files import check_folder_writable, write_atomically
from compiler_opt.llvm.ir2vec import components
from compiler_opt.policies.development_model import OUTPUT_SPEC_FILE, TFLITE_FILE
from compiler_opt.policies.model_card import CHECKSUM_FACT
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.spaces.native import BLOB_SYMBOL, NATIVE_FILE, embedded_source, include_directory, native_blob

CPP_FILE = f"{BLOB_SYMBOL}.cpp"
_HEADER = "policy_network.h"


def export_policy(
    policy_dir: Path, output: Path, formats: list[str], *, evaluation: Path | None = None
) -> dict[str, list[Path]]:
    """Writes a policy in some forms, and its model card beside them.

    Args:
      policy_dir: a policy's folder.
      output: the folder to write into; what else is in it stays.
      formats: names among `FORMATS`.
      evaluation: folder of an evaluation of this policy, whose results go into the card.

    Returns:
      for each format the files.

    Raises:
      PolicyError: there is no good policy, or it has not this form.
      ConfigError: a format is unknown, or the evaluation is of another policy.
      ToolchainError: a tool that it takes is missing or fails.
      OutputError: a file cannot be written.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        found = repr(unknown[0]) if unknown else "none"
        raise ConfigError(f"--format: expected some of {', '.join(FORMATS)}; found {found}")
    weights = NetworkWeights.load(policy_dir)
    card = weights.card()
    if evaluation is not None:
        card = card.with_results(evaluation_results(evaluation, weights.checksum()))
    problem = problems.recorded(weights.metadata, str(policy_dir))
    model, possible = EMBEDDED_MODELS[problem.advisor.problem], problem.action_space.formats(weights)
    impossible = [form for form in formats if form not in possible]
    if impossible and components(weights.features):
        raise PolicyError(
            f"{policy_dir}: sees IR2Vec embeddings, for which the format {impossible[0]} has no place; expected aot, "
            "or a policy that was trained without them"
        )
    if impossible:
        raise PolicyError(
            f"{policy_dir}: there is no way yet to write a policy for {problem.name} in the format {impossible[0]}; "
            + (
                f"expected some of {', '.join(possible)}"
                if possible
                else "compiler_opt/tools/deploy.py takes it as it is"
            )
        )
    check_folder_writable(output)
    written = {name: FORMATS[name](policy_dir, weights, model, output) for name in formats}
    card.save(output)
    return written


def evaluation_results(directory: Path, checksum: str) -> list[dict[str, Any]]:
    """What `evaluate` measured, in the words of a model card.

    Raises:
      ConfigError: there is no evaluation, or it measured other weights.
    """
    path = directory / "summary.json"
    try:
        summary = json.loads(path.read_bytes())
        facts, name = summary["provenance"], summary["policy"]
        found, total = facts.get(CHECKSUM_FACT), summary["totals"][name]
        result = {
            "corpus": facts["Corpus"],
            "compiler": facts["Compiler"],
            "optimisation": facts["Optimisation"],
            "modules": summary["num_modules"],
            "linked text against the default": f"{total['linked_change']:+.2%}",
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
            f"{path}: measures other weights (checksum {(found or 'not recorded')[:12]}, this policy's is "
            f"{checksum[:12]}); evaluate this policy"
        )
    return [result]


def _native(policy_dir: Path, weights: NetworkWeights, model: EmbeddedModel, output: Path) -> list[Path]:
    del policy_dir, model
    return _write(output, {NATIVE_FILE: native_blob(weights)})


def _cpp(policy_dir: Path, weights: NetworkWeights, model: EmbeddedModel, output: Path) -> list[Path]:
    del policy_dir, model
    header = (include_directory() / _HEADER).read_bytes()
    return _write(output, {CPP_FILE: embedded_source(native_blob(weights)).encode(), _HEADER: header})


def _release_model(policy_dir: Path, weights: NetworkWeights, model: EmbeddedModel, output: Path) -> list[Path]:
    del policy_dir
    return write_release_model(weights, model, output)


def _tflite(policy_dir: Path, weights: NetworkWeights, model: EmbeddedModel, output: Path) -> list[Path]:
    del policy_dir
    # Not before everything that the user gave is known to be good: it takes seconds.
    from compiler_opt.tensorflow_loading import load_tensorflow

    load_tensorflow()
    from compiler_opt.export.tflite import tflite_model

    converted = tflite_model(weights, model.advice.name)
    return _write(output, {TFLITE_FILE: converted.content, OUTPUT_SPEC_FILE: converted.output_spec.encode()})


def _aot(policy_dir: Path, weights: NetworkWeights, model: EmbeddedModel, output: Path) -> list[Path]:
    del weights
    return write_aot(policy_dir, model, output)


FORMATS: Mapping[str, Callable[[Path, NetworkWeights, EmbeddedModel, Path], list[Path]]] = {
    "native": _native,
    "cpp": _cpp,
    "release_model": _release_model,
    "tflite": _tflite,
    "aot": _aot,
}


def _write(output: Path, contents: Mapping[str, bytes]) -> list[Path]:
    for name, content in contents.items():
        write_atomically(output / name, content)
    return [output / name for name in contents]
