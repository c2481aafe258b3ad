"""Every start of a process: in the sandbox, or exempt for a reason.

Programs that are not ours read files that may come from anybody (bitcode, objects, profiles, symbol names), and are not
made for hostile ones.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

EXEMPT = {
    "collect/cluster/connection.py:_check_address": "a line of our own, in another Python",
    "corpus/ready_made/archives.py:_download": "pip, which checks the archive against our hash",
    "corpus/ready_made/builder.py:_compiler_version": "asks the compiler for its version",
    "corpus/ready_made/builder.py:_Builder._compile_one": "sources of releases that we have chosen, by their hashes",
    "corpus/ready_made/cross_compiling.py:Target.architecture": "asks the compiler for its target",
    "corpus/ready_made/cross_compiling.py:Target.check": "compiles a line of our own",
    "deploy/deployment.py:_try_out": "the deployed compiler, on a module of our own",
    "deploy/driver.py:_run_first": "compiles our own sources",
    "export/release_model.py:write_release_model": "compiles C++ that we have written",
    "export/release_model.py:write_aot": "TensorFlow, in our own Python",
    "llvm/fork_server.py:_Server.__init__": "enters the sandbox by itself",
    "llvm/fork_server.py:build_library": "compiles our own source",
    "llvm/inliner_plugin.py:*": "compiles a module of our own",
    "llvm/plugin.py:llvm_definitions": "asks llvm-config for flags",
    "llvm/plugin.py:run_first": "compiles our own sources",
    "llvm/probe.py:*": "compiles modules of our own",
    "llvm/profile.py:check_runtime": "compiles a line of our own",
    "llvm/options_plugin.py:_try_out": "compiles a module of our own",
    "llvm/regalloc_plugin.py:_try_out": "compiles a module of our own",
    "llvm/scratch.py:remove_folder": "chmod and rm, which read no file",
    "llvm/spawn.py:spawn_directly": "enters the sandbox by itself",
    "llvm/toolchain.py:*": "asks the compiler for its version and folders",
    "measure/*": "the user's own programs, and perf on what it has recorded of them",
    "optimize/*": "the user's own builds and tests",
    "rl/comparison.py:execute": "our own commands, which start their compilers in it",
    "tools/diagnosis.py:*": "compiles a line of our own",
}
"""By file below compiler_opt/ and function, `*` for all: why a process needs no sandbox."""

STARTERS = re.compile(
    r"(processes\.)?(run|start|run_logged|spawn_directly|compile_interactively|run_first)|(\w+\.)?Popen"
    r"|subprocess\.\w+|os\.(exec\w+|spawn\w+|posix_spawn\w*|system|popen|fork\w*)|pty\.\w+"
    r"|(asyncio|loop)\.(create_)?subprocess_\w+|(interactive\.)?compile_interactively"
)
"""Functions that start a process, as they are called; methods of other objects are none."""

NOT_STARTERS = {"subprocess.SubprocessError", "subprocess.CalledProcessError"}


def starts(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Each call that starts a process, with the qualified name of its function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] in _HOMES
        for alias in node.names
    }

    def visit(node: ast.AST, place: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = (*place, node.name)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_known = "." in name or name in imported
            if is_known and STARTERS.fullmatch(name) and name not in NOT_STARTERS:
                yield ".".join(place), node
        for child in ast.iter_child_nodes(node):
            yield from visit(child, place)

    yield from visit(tree, ())


_HOMES = ("processes", "spawn", "subprocess", "os", "pty", "interactive", "plugin")


def in_sandbox(call: ast.Call) -> bool:
    """Whether the call passes a sandbox other than None."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == "sandbox"]
    return bool(values) and not (isinstance(values[0], ast.Constant) and values[0].value is None)


def exemptions(file: str, function: str) -> set[str]:
    return {f"{file}:{function}", f"{file}:*", f"{file.partition('/')[0]}/*"} & EXEMPT.keys()


def test_every_process_that_reads_foreign_bytes_is_in_the_sandbox() -> None:
    used: set[str] = set()
    without, num_starts = [], 0
    for path in sorted((ROOT / "compiler_opt").rglob("*.py")):
        file = str(path.relative_to(ROOT / "compiler_opt"))
        if file == "llvm/processes.py":
            continue  # the functions themselves, which hand the sandbox on
        for function, call in starts(path):
            num_starts += 1
            if not in_sandbox(call):
                found = exemptions(file, function)
                used |= found
                if not found:
                    without.append(f"{file}:{call.lineno}: {function}: {ast.unparse(call.func)}")
    assert not without, f"pass a sandbox, or say here why none is needed: {'; '.join(without)}"
    assert EXEMPT.keys() - used == set()
    assert num_starts > 40


def test_all_ways_to_start_a_process_are_found(tmp_path: Path) -> None:
    """Otherwise, the test above would be vacuous."""
    lines = (
        "processes.run([x])",
        "processes.start([x], stderr=e)",
        "processes.run_logged([x], log)",
        "processes.run([x], sandbox=None)",
        "subprocess.run([x])",
        "subprocess.Popen([x])",
        "Popen([x])",
        "run([x])",
        "os.system(x)",
        "os.execvp(x, y)",
        "os.posix_spawn(x, y, z)",
        "interactive.compile_interactively([x])",
    )
    head = "from subprocess import Popen\nfrom compiler_opt.llvm.processes import run\n"
    (tmp_path / "a.py").write_text(head + "\n".join(lines) + "\nprocesses.run([x], sandbox=box)\nself.run([x])\n")
    found = [ast.unparse(call) for _, call in starts(tmp_path / "a.py") if not in_sandbox(call)]
    assert found == list(lines)
