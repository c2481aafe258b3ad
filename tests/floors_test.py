"""A package imports only from packages on lower floors, TensorFlow only where it is needed; files are short."""

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "compiler_opt"

FLOORS = {
    name: number
    for number, names in enumerate(
        (
            ("compiler_opt.commands", "compiler_opt.errors"),
            (
                "compiler_opt.files",
                "compiler_opt.progress_bar",
                "compiler_opt.tensor_spec",
                "compiler_opt.tensorflow_loading",
            ),
            ("compiler_opt.array_files", "compiler_opt.checked_values"),
            ("compiler_opt.kept_results", "compiler_opt.llvm"),
            ("compiler_opt.corpus", "compiler_opt.measure"),
            ("compiler_opt.policies",),
            ("compiler_opt.spaces",),
            ("compiler_opt.objectives", "compiler_opt.decisions.decision"),
            ("compiler_opt.problem",),
            ("compiler_opt.decisions",),
            ("compiler_opt.pretrained",),
            ("compiler_opt.collect",),
            ("compiler_opt.report",),
            ("compiler_opt.pass_options",),
            ("compiler_opt.evaluation",),
            ("compiler_opt.cost_models",),
            (
                "compiler_opt.env",
                "compiler_opt.export",
                "compiler_opt.deploy",
                "compiler_opt.search",
            ),
            ("compiler_opt.importing", "compiler_opt.rl"),
            ("compiler_opt.optimize",),
            ("compiler_opt.tools",),
            ("compiler_opt.rl.train_bc", "compiler_opt.rl.train_locally"),
            ("compiler_opt",),
            ("compiler_opt.__main__",),
        )
    )
    for name in names
}
"""By module or package, the lowest first; the longest name that fits counts."""

WORKER = FLOORS["compiler_opt.collect"]
"""The highest floor that a worker process imports from."""

MAY_IMPORT_TENSORFLOW = (
    "compiler_opt.cost_models.ir2native.network",
    "compiler_opt.cost_models.throughput.model",
    "compiler_opt.cost_models.throughput.networks",
    "compiler_opt.cost_models.throughput.tflite",
    "compiler_opt.cost_models.throughput.training",
    "compiler_opt.export",
    "compiler_opt.importing",
    "compiler_opt.rl",
    "compiler_opt.spaces.heads",
)

NOT_SHIPPED = {"benchmarks", "studies", "tests"}
"""Packages of the repository that users of ours do not have."""

OVER_LONG = {"compiler_opt/native/policy_network.h"}
"""An export has it as the one header that evaluates networks; programs of others include and copy it as such."""

TENSORFLOW = {"keras", "tensorboard", "tensorflow", "tensorflow_probability", "tf_agents", "tf_keras"}


@functools.cache
def trees() -> Mapping[str, ast.Module]:
    """The syntax tree of each module."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


def package(module: str) -> str:
    """The longest name in FLOORS that fits."""
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        name = ".".join(parts[:length])
        if name in FLOORS:
            return name
    if module in FLOORS:
        return module
    raise KeyError(f"{module} has no floor yet; add its package to FLOORS")


def floor(module: str) -> int:
    return FLOORS[package(module)]


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Full names of all imports among these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "relative imports hide where things come from"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, without what is in functions, which a module needs only when they are called."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from outside_functions(node)


def test_imports_only_from_below() -> None:
    wrong = []
    for module, tree in trees().items():
        for imported in imports(ast.walk(tree)):
            top = imported.split(".")[0]
            if top in NOT_SHIPPED:
                wrong.append(f"{module} imports {imported}, which is not shipped")
            elif top == PACKAGE and package(imported) != package(module) and floor(imported) >= floor(module):
                wrong.append(f"{module} imports {imported}, which is not on a lower floor")
    assert not wrong


def test_no_circles() -> None:
    """Types count, too: who annotates with a module has to know it."""
    needed = {
        module: {name for name in imports(outside_functions(tree)) if name in MODULES}
        for module, tree in trees().items()
    }
    graphlib.TopologicalSorter(needed).prepare()  # raises CycleError, which names the circle


def test_only_some_packages_import_tensorflow() -> None:
    wrong = []
    for module, tree in trees().items():
        # Entry points may import it in functions, after their flags are parsed.
        is_entry_point = floor(module) >= FLOORS["compiler_opt.tools"]
        nodes = outside_functions(tree) if is_entry_point else ast.walk(tree)
        found = {name.split(".")[0] for name in imports(nodes)} & TENSORFLOW
        if found and not module.startswith(MAY_IMPORT_TENSORFLOW):
            wrong.append(f"{module} imports {', '.join(sorted(found))}")
    assert not wrong


def test_no_file_exceeds_400_lines() -> None:
    files = [path for folder in (PACKAGE, *NOT_SHIPPED) for path in (ROOT / folder).rglob("*.*")]
    sources = [path for path in files if path.suffix in (".py", ".cpp", ".h", ".c")]
    long = {str(path.relative_to(ROOT)) for path in sources if path.read_text().count("\n") > 400}
    assert long == OVER_LONG


def test_a_worker_needs_no_tensorflow() -> None:
    low = [name for name in MODULES if floor(name) <= WORKER and not name.startswith(MAY_IMPORT_TENSORFLOW)]
    code = f"import sys\nimport {', '.join(low)}\nsys.exit(str({TENSORFLOW} & set(sys.modules) or ''))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""
