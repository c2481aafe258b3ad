"""Shows what this machine's compiler can do, what is missing, and how to get it.

Exit status 0 when an inlining policy can be trained and evaluated with it, 2 when not.
"""

from absl import flags

from compiler_opt.llvm.toolchain import probe
from compiler_opt.tools import diagnosis, entry_point

_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The clang to look at; by default the newest that is installed.")


@entry_point.command
def entry() -> int:
    toolchain = probe(_CLANG_PATH.value)
    findings = diagnosis.diagnose(toolchain)
    print(diagnosis.report(toolchain, findings))
    return entry_point.EXIT_USER_ERROR if any(finding.essential for finding in findings) else 0


if __name__ == "__main__":
    entry()
