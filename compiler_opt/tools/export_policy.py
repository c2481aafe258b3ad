"""Exports a trained policy to the formats that compilers read, with its model card.

    PYTHONPATH=. python3 compiler_opt/tools/export_policy.py --policy_path=$POLICY --output_path=$DIR --format=native

    native         network.mlgo: the weights, for policy_network.h and the inliner plugin
    cpp            the weights as C++ source, with the header that evaluates them
    release_model  a class for LLVM's ReleaseModeModelRunner, without TensorFlow
    tflite         model.tflite and output_spec.json, for a clang in LLVM's development mode
    aot            header and object by TensorFlow's AOT compiler

docs/deploy.md explains how to use each.
"""

from absl import flags

from compiler_opt import pretrained
from compiler_opt.export.formats import FORMATS, export_policy
from compiler_opt.files import exclusive_directory
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = shared_flags.policy("policy_path", "The trained policy.", required=True)
_OUTPUT_PATH = shared_flags.required_path("output_path", "Folder to write into.")
_FORMAT = flags.DEFINE_list("format", None, f"Comma-separated formats: {', '.join(FORMATS)}.", required=True)
_EVALUATION = shared_flags.path(
    "evaluation", "Folder of results that evaluate.py wrote for this policy, for the model card."
)
_MARGIN = shared_flags.margin("Export")


@entry_point.command
def entry() -> None:
    output = _OUTPUT_PATH.value
    evaluation = _EVALUATION.value
    with exclusive_directory(output, "--output_path"):
        policy_dir = pretrained.folder(_POLICY_PATH.value)
        written = export_policy(policy_dir, output, _FORMAT.value, evaluation=evaluation, margin=_MARGIN.value)
    for name, paths in written.items():
        for path in paths:
            print(f"{name}: {path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    entry()
