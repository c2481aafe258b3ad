"""The house stands: a floor imports only from those below it, and TensorFlow stays upstairs."""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "compiler_opt"

FLOORS = {
    "compiler_opt": 0,
    "compiler_opt.array_files": 0,
    "compiler_opt.checked_values": 0,
    "compiler_opt.errors": 0,
    "compiler_opt.files": 0,
    "compiler_opt.tensor_spec": 0,
    "compiler_opt.tensorflow_loading": 0,
    "compiler_opt.corpus": 1,
    "compiler_opt.llvm": 1,
    "compiler_opt.report": 3,
    "compiler_opt.policies": 2,
    "compiler_opt.problems": 2,
    "compiler_opt.spaces": 2,
    "compiler_opt.spaces.heads": 4,
    "compiler_opt.collect": 3,
    "compiler_opt.deploy": 4,
    "compiler_opt.evaluation": 4,
    "compiler_opt.optimize": 4,
    "compiler_opt.export": 4,
    "compiler_opt.rl": 4,
    "compiler_opt.rl.train_bc": 5,
    "compiler_opt.rl.train_locally": 5,
    "compiler_opt.tools": 5,
}
"""By module or package; the longest name that fits counts."""

MAY_IMPORT_TENSORFLOW = ("compiler_opt.export", "compiler_opt.rl", "compiler_opt.spaces.heads")

TENSORFLOW = {"keras", "tensorboard", "tensorflow", "tensorflow_probability", "tf_agents", "tf_keras"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


def floor(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        name = ".".join(parts[:length])
        if name in FLOORS:
            return FLOORS[name]
    if module in FLOORS:
        return FLOORS[module]
    raise KeyError(f"{module} stands on no floor yet: give its package one in FLOORS")


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported, anywhere in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "relative imports hide where things come from"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_from_below(module: str) -> None:
    for imported in imports(ast.parse(MODULES[module].read_text())):
        if imported.split(".")[0] == PACKAGE:
            assert floor(imported) <= floor(module), f"{module} imports {imported} from a floor above"


@pytest.mark.parametrize("module", MODULES)
def test_tensorflow_stays_upstairs(module: str) -> None:
    if module.startswith(MAY_IMPORT_TENSORFLOW):
        return
    tree = ast.parse(MODULES[module].read_text())
    if floor(module) == 5:
        # Entry points may, inside a function: their flags are read without it.
        tree.body = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    found = {name.split(".")[0] for name in imports(tree)} & TENSORFLOW
    assert not found, f"{module} imports {', '.join(sorted(found))}"


def _import_cpu_s(modules: Sequence[str]) -> float:
    """CPU seconds of a Python that imports them, and does not import TensorFlow."""
    code = (
        f"import sys, time\nimport {', '.join(modules)}\n"
        f"assert not {TENSORFLOW} & set(sys.modules), set(sys.modules)\n"
        "print(time.process_time())"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return float(result.stdout)


def test_a_worker_starts_quickly_and_without_tensorflow() -> None:
    low = [module for module in MODULES if floor(module) <= 3]
    # As the machine is, so is NumPy, some 0.1 to 0.2 s; TensorFlow takes 25 times that.
    ratios = [_import_cpu_s(low) / _import_cpu_s(["numpy"]) for _ in range(3)]
    assert statistics.median(ratios) < 6, f"importing floors 0 to 3 takes {ratios} times the CPU time of NumPy"
