"""Saves the mean of several policies' logits as one policy, such as of trainings with different seeds.

    compiler_opt policy average --policy_path=$A --policy_path=$B --output_dir=$POLICY

The policies must share their vocabulary and their number of layers. The result has margin 0; see `policy margin`.
"""

from pathlib import Path

from compiler_opt import pretrained
from compiler_opt.export.average import save_average
from compiler_opt.files import check_folder_writable
from compiler_opt.tools import entry_point, shared_flags

_POLICY_PATH = shared_flags.policies("policy_path", "A policy; give two or more.", required=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder of the new policy, which is replaced if it exists.")


@entry_point.command
def entry() -> None:
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output.parent)
    weights = save_average([pretrained.folder(path) for path in _POLICY_PATH.value], output)
    layers = "-".join(str(len(bias)) for bias in weights.biases)
    print(f"{output}: the mean of {len(_POLICY_PATH.value)} policies, dense layers {layers}")


if __name__ == "__main__":
    entry()
