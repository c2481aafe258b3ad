"""Deployments side by side: PREFIX is a symbolic link to one of PREFIX.1, PREFIX.2, and so on."""

import re
import tempfile
from pathlib import Path

from compiler_opt.errors import OutputError


def next_version(prefix: Path) -> Path:
    """The folder for the next deployment, which does not exist yet.

    Raises:
      OutputError: the prefix exists, and is not a link.
    """
    if prefix.exists() and not prefix.is_symlink():
        raise OutputError(
            f"{prefix}: expected nothing, or the link of an earlier --versioned, found something else; rename it, or "
            "give another --output_dir"
        )
    pattern = re.compile(re.escape(prefix.name) + r"\.([1-9]\d*)")
    names = [path.name for path in prefix.parent.iterdir()] if prefix.parent.is_dir() else []
    numbers = [int(match[1]) for name in names if (match := pattern.fullmatch(name))]
    return prefix.with_name(f"{prefix.name}.{max(numbers, default=0) + 1}")


def replace_link(link: Path, target: str) -> None:
    """Makes a symbolic link, or changes its target, in one step.

    Raises:
      OSError: it cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{link.name}.", dir=link.parent) as scratch:
        new = Path(scratch) / link.name
        new.symlink_to(target)
        new.replace(link)
