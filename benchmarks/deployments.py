"""What benchmarks deploy, by their flags."""

from collections.abc import Sequence

from compiler_opt import pretrained
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.tools import shared_flags


def policy_requests(name: str | None, levels: Sequence[str] | None = None) -> list[PolicyRequest]:
    """The policy that a flag `--policy_path` names: without a name the one that ships, for `none` no policy.

    Args:
      name: the flag's value.
      levels: at which it decides; None for those of its problem.
    """
    if name == shared_flags.NONE:
        return []
    return [PolicyRequest(pretrained.folder(name) if name else None, levels=levels)]
