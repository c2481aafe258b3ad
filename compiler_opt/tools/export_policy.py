"""Exports a trained policy to the formats that compilers read, with its model card.

    compiler_opt export_policy --policy_path=$POLICY --output_dir=$DIR --format=native

    native         network.mlgo: the weights, for policy_network.h and the plugins
    cpp            the weights as C++ source, with the headers that evaluate them
    release_model  a class for LLVM's ReleaseModeModelRunner, without TensorFlow
    saved_model    saved_model.pb and variables/, TensorFlow's SavedModel
    tflite         model.tflite and output_spec.json, for a clang in LLVM's development mode
    aot            header and object by TensorFlow's AOT compiler

All of them are made from the weights in network.npz. Other forms in the policy's folder are not read, since a
SavedModel can hold any operation.

A release_model may have several policies, which the compiler selects by name: repeat --policy_path, and --name.

docs/deploy_forms.md explains how to use each.
"""

from absl import flags

from compiler_opt import pretrained
from compiler_opt.errors import ConfigError
from compiler_opt.export.formats import FORMATS, export_policy, export_selectable
from compiler_opt.files import exclusive_directory
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = shared_flags.policies(
    "policy_path", "The trained policy; give several, and a --name for each, for one release_model.", required=True
)
_NAME = flags.DEFINE_multi_string(
    "name", [], "The name by which the compiler selects a policy in a release_model; in the order of --policy_path."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder to write into.")
_FORMAT = flags.DEFINE_list("format", None, f"Comma-separated formats: {', '.join(FORMATS)}.", required=True)
_EVALUATION = shared_flags.path(
    "evaluation", "Folder of results that evaluate wrote for this policy, for the model card."
)
_MARGIN = shared_flags.margin("Export")


@entry_point.command
def entry() -> None:
    output, formats, names = _OUTPUT_DIR.value, _FORMAT.value, _NAME.value
    folders = [pretrained.folder(path) for path in _POLICY_PATH.value]
    if names and (formats != ["release_model"] or _EVALUATION.value):
        raise ConfigError("--name: expected with --format=release_model alone, and without --evaluation")
    if len(folders) != len(set(names) or [""]) or len(names) != len(set(names)) or not all(names):
        raise ConfigError(
            f"--policy_path: found {len(folders)} policies and {len(names)} names; expected one policy, or for "
            "--format=release_model several and a different --name for each"
        )
    with exclusive_directory(output, "--output_dir"):
        if names:
            policies = dict(zip(names, folders, strict=True))
            written = {"release_model": export_selectable(policies, output, margin=_MARGIN.value)}
        else:
            written = export_policy(folders[0], output, formats, evaluation=_EVALUATION.value, margin=_MARGIN.value)
    for name, paths in written.items():
        for path in paths:
            print(f"{name}: {path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    entry()
