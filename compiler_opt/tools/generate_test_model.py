"""Writes a small policy with random weights, in LLVM's forms: for tests of compilers that load a model.

    compiler_opt generate_test_model --compile_task=inlining --output_dir=$MODEL

The folder is that of a trained policy, with LLVM's names and types of features and advice: a SavedModel, of which
LLVM's build makes a model for the release mode, and for inlining `model.tflite` and `output_spec.json` for the
development mode. The same seed gives the same weights.
"""

from pathlib import Path

from absl import flags

from compiler_opt.errors import ConfigError
from compiler_opt.export.random_policy import random_policy
from compiler_opt.export.untrained_policies import save_in_all_forms
from compiler_opt.files import check_folder_writable
from compiler_opt.policies.vocabulary import load_vocabulary
from compiler_opt.rl import vocabularies
from compiler_opt.tools import entry_point, shared_flags

_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder of the policy, which is replaced if it exists.")
flags.DEFINE_alias("root_dir", _OUTPUT_DIR.name)  # its name in google/ml-compiler-opt
_COMPILE_TASK = shared_flags.TaskFlag("inlining")
_VOCAB_PATH = shared_flags.path("vocab_path", "The vocabulary; by default the one that ships for the problem.")
_HIDDEN_UNITS = flags.DEFINE_list("fc_layer_params", ["16"], "Comma-separated units of the hidden layers.")
_SEED = shared_flags.seed("the weights")


def _check_units(values: list[str]) -> bool:
    return all(value.isdecimal() and int(value) > 0 for value in values)


flags.register_validator("fc_layer_params", _check_units, "expected numbers over 0, such as 64,64")


@entry_point.command
def entry() -> None:
    output: Path = _OUTPUT_DIR.value
    problem = _COMPILE_TASK.load()
    vocabulary = _VOCAB_PATH.value or vocabularies.shipped_vocabulary(problem.decision)
    if vocabulary is None:
        raise ConfigError(
            f"--vocab_path: no vocabulary ships for {problem.name}; give one of compiler_opt generate_vocab"
        )
    quantiles = load_vocabulary(vocabulary, problem.decision.feature_names)
    weights = random_policy(problem, quantiles, [int(units) for units in _HIDDEN_UNITS.value], seed=_SEED.value)
    check_folder_writable(output.parent)
    save_in_all_forms(weights, output)
    print(f"{output}: {weights.metadata['method']}")


if __name__ == "__main__":
    entry()
