"""The policy of a run that goes on, or that was interrupted: what this project's commands read, in a tenth of a second.

LLVM's forms of a policy take seconds. They are written at the end of the run (`learner.save_run_policy`); of an
unfinished policy, `export_policy` makes them.
"""

import contextlib
import dataclasses
from pathlib import Path

from compiler_opt.errors import OutputError, PolicyError
from compiler_opt.files import replaced_folder
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import POLICY_DIR, SAVED_POLICY

UNFINISHED = "unfinished"
"""The key, in the metadata of an unfinished policy, of how far the run was."""

_REMEDY = "run the command that began it again to finish it"


def save_unfinished_policy(root_dir: Path, weights: NetworkWeights, how_far: str) -> None:
    """Writes the policy so far into the run's folder, all or nothing. Raises OutputError if it cannot be written."""
    unfinished = dataclasses.replace(weights, metadata={**weights.metadata, UNFINISHED: how_far})
    save_network(root_dir / POLICY_DIR, unfinished)
    link_policy(root_dir)


def is_finished(root_dir: Path) -> bool:
    """Whether a run's folder has the intact policy of a finished run; another one may be replaced."""
    with contextlib.suppress(PolicyError):
        return UNFINISHED not in NetworkWeights.load(root_dir / POLICY_DIR).metadata
    return False


def how_far_kept(policy_dir: Path) -> str:
    """How far the run was whose unfinished policy is in a folder; empty if there is none."""
    with contextlib.suppress(PolicyError):
        return str(NetworkWeights.load(policy_dir).metadata.get(UNFINISHED, ""))
    return ""


def unfinished_warning(policy_dir: Path) -> str:
    """What to say before the policy in a folder is put to use: empty unless it is of an unfinished run."""
    how_far = how_far_kept(policy_dir)
    return how_far and f"{policy_dir}: the policy so far of an unfinished run ({how_far}); {_REMEDY}"


def finished_policy(policy_dir: Path) -> NetworkWeights:
    """A policy's weights. Raises PolicyError if it is damaged, or of a run that was not finished."""
    weights = NetworkWeights.load(policy_dir)
    if (how_far := weights.metadata.get(UNFINISHED)) is not None:
        raise PolicyError(f"{policy_dir}: expected the policy of a finished run, found one of {how_far}; {_REMEDY}")
    return weights


def save_network(directory: Path, weights: NetworkWeights) -> None:
    """Writes a policy's folder without LLVM's forms, all or nothing. Raises OutputError if it cannot be written."""
    try:
        with replaced_folder(directory) as partial:
            weights.save(partial)
            weights.card().save(partial)
    except OSError as error:
        raise OutputError(f"{directory}: cannot be written: {error.strerror or error}") from error


def link_policy(root_dir: Path) -> None:
    """Links to a run's policy by the name that google/ml-compiler-opt gives it, where there are links."""
    with contextlib.suppress(OSError):
        (root_dir / SAVED_POLICY).symlink_to(POLICY_DIR)
