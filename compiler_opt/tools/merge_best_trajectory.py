"""Merges stores of best trajectories, as trainings with `bc_max` leave them, into one.

    compiler_opt merge_best_trajectory --input=$RUN/best_trajectories \
        --input=$OTHER/best_trajectories --output_dir=$STORE

Of each module the trajectory with the highest reward is kept; damaged files are set aside (`NAME.damaged`). A later
training learns from the store by `bc_max.stores`.
"""

from pathlib import Path

from absl import flags

from compiler_opt.collect.best_trajectories import BestTrajectories
from compiler_opt.errors import ConfigError
from compiler_opt.files import exclusive_directory
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_INPUT = flags.DEFINE_multi_string("input", None, "Folder of a store; may be given several times.", required=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder of the merged store, which may have trajectories.")


@entry_point.command
def entry() -> None:
    output_dir: Path = _OUTPUT_DIR.value
    inputs = [Path(path) for path in _INPUT.value]
    for path in inputs:
        if not path.is_dir():
            raise ConfigError(f"--input={path}: expected a folder of trajectories, such as that of a training; no such")
    with exclusive_directory(output_dir, "--output_dir"):
        for path in inputs:
            added = BestTrajectories(output_dir).merge(BestTrajectories(path), entry_point.warn)
            echo(f"{path}: {added:,} of its trajectories are better than those before, or the first of their modules")


if __name__ == "__main__":
    entry()
