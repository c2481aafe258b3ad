"""Shows the capabilities of this machine's compiler, what is missing, and how to install it.

Exit status: 0 if inlining policies can be trained and evaluated with it, 2 if not.
"""

from compiler_opt.llvm.toolchain import probe
from compiler_opt.tensorflow_loading import missing_packages
from compiler_opt.tools import diagnosis, entry_point, shared_flags

_CLANG_PATH = shared_flags.clang_path()
shared_flags.json()


@entry_point.command
def entry() -> int:
    toolchain = probe(_CLANG_PATH.value)
    findings = diagnosis.diagnose(toolchain, missing_packages())
    print(diagnosis.report(toolchain, findings))
    entry_point.print_json(diagnosis.to_json(toolchain, findings))
    return entry_point.EXIT_USER_ERROR if any(finding.essential for finding in findings) else 0


if __name__ == "__main__":
    entry()
