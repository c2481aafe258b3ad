"""Writes the files of a deployment to its prefix, and removes those of an earlier one."""

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from compiler_opt.deploy.versions import replace_link
from compiler_opt.errors import OutputError
from compiler_opt.files import write_atomically
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE

LINKED_TOOLS = ("llvm-ar", "llvm-ranlib", "clang-scan-deps")
SHARE = Path("share") / "mlgo"

_CARDS = (CARD_FILE, MARKDOWN_FILE)
_OURS = re.compile(
    r"mlgo-(inliner|regalloc)(-\d+)?-\d+\.so|mlgo-options-O[23sz]-\d+\.so|mlgo-pass-[0-9a-f]{16}\.so|"
    r"mlgo-decisions-\d+\.mlgo|mlgo-clang(\+\+)?-\d+|mlgo-nowhere\.(in|out)|"
    rf"mlgo-({'|'.join(LINKED_TOOLS)})(-\d+)?|toolchain(-\d+)?\.cmake|"
    rf"((inliner|regalloc)(-\d+)?/)?({'|'.join(map(re.escape, _CARDS))})"
)
_FOLDERS = (Path("bin"), Path("lib"), SHARE)


def install(prefix: Path, files: Mapping[Path, bytes], links: Mapping[Path, str], dates_s: Mapping[Path, int]) -> None:
    """Writes each file and link atomically, and removes what else an earlier deployment has written.

    Args:
      prefix: the folder.
      files: contents by path relative to the prefix, in the order in which they are written.
      links: targets of symbolic links by such a path.
      dates_s: modification times of some of the files.

    Raises:
      OutputError: the prefix cannot be written.
    """
    for name, content in files.items():
        write_atomically(prefix / name, content, executable=name.parts[0] == "bin")
    wanted = {*links, *files}
    try:
        for name, date_s in dates_s.items():
            os.utime(prefix / name, (date_s, date_s))
        for link, target in links.items():
            replace_link(prefix / link, target)
        for folder in _FOLDERS:
            for path in sorted((prefix / folder).glob("*")) + sorted((prefix / folder).glob("*/*")):
                if _OURS.fullmatch(str(path.relative_to(prefix / folder))) and path.relative_to(prefix) not in wanted:
                    path.unlink()
                    _remove_if_empty(path.parent)
    except OSError as error:
        raise OutputError(f"{prefix}: cannot be written: {error.strerror}; choose another folder") from error


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
