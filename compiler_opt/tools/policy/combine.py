"""Saves several policies as one, which decides as one of them by the value of a feature.

    compiler_opt policy combine --policy_path=$SMALL --policy_path=$LARGE \
        --feature=callee_basic_block_count --threshold=8 --output_dir=$POLICY

Below the first `--threshold` the first policy decides, from there to below the second one the second policy, and so on;
a policy may be given several times, and `always` and `never` are policies, too. The trained ones must share their
vocabulary and margin. If they observe the feature, the thresholds must be among its quantiles.
"""

from pathlib import Path

from absl import flags

from compiler_opt import pretrained
from compiler_opt.export.combination import CONSTANT, save_combination
from compiler_opt.files import check_folder_writable
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = shared_flags.policies("policy_path", "A policy, or always or never; give two or more.", required=True)
_FEATURE = flags.DEFINE_string("feature", None, "The feature that chooses the policy.", required=True)
_THRESHOLD = flags.DEFINE_multi_float(
    "threshold", None, "The value from which on the next policy decides; give one less than policies.", required=True
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder of the new policy, which is replaced if it exists.")


@entry_point.command
def entry() -> None:
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output.parent)
    policies = [path if path in CONSTANT else pretrained.folder(path) for path in _POLICY_PATH.value]
    weights = save_combination(policies, _FEATURE.value, _THRESHOLD.value, output)
    layers = "-".join(str(len(bias)) for bias in weights.biases)
    print(f"{output}: {weights.metadata.get('method', 'rules before a network')}, dense layers {layers}")


if __name__ == "__main__":
    entry()
