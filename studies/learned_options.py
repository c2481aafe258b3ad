"""Learns to choose options for single functions from what all functions of other projects cost with each set.

    python -m studies.learned_options --data_path=$CORPUS/train --output_dir=$OUTPUT

Every module is compiled with each set of the menu that ships; `OUTPUT/PROJECT.npz` keeps bytes, estimated instructions
and features of all functions of a project, and the same command continues.
"""

from compiler_opt import pretrained
from compiler_opt.array_files import save_arrays
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.files import exclusive_directory
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.pass_options.sets import shipped
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.function_options import measure, task
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_CORPUS = shared_flags.CorpusFlags(module_filter=False, projects=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results.")
_POLICY = shared_flags.policy("policy_path", "The policy that decides about inlining; by default the compiler does.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    menu = shipped(toolchain.version[0]).menu("Oz", toolchain.target.partition("-")[0])
    policy = DECISION.load_policy(pretrained.folder(_POLICY.value)) if _POLICY.value else None
    if policy is not None:
        toolchain = with_plugin_features(toolchain, policy.plugin_features)
    projects = corpus.projects()
    with exclusive_directory(_OUTPUT_DIR.value, "--output_dir"):
        bytes_of = {name: sum(module.bitcode_bytes() for module in modules) for name, modules in projects.items()}
        for name in sorted(projects, key=lambda name: bytes_of[name]):
            path = _OUTPUT_DIR.value / f"{name}.npz"
            if path.exists():
                continue
            modules = projects[name]
            with (
                WorkerPool(toolchain, task(toolchain), entry_point.num_workers(_NUM_WORKERS.value)) as pool,
                progress_bar(total=len(menu) * len(modules), description=name, unit="compile") as bar,
            ):
                found = measure(modules, policy, pool, menu, bar.update)
            for (module, number), failure in found.failures.items():
                echo(f"{module}, set {number}: {failure}")
            save_arrays(
                path,
                {"bytes": found.bytes, "instructions": found.instructions, "features": found.features},
                compressed=True,
            )
            change = found.after() / found.before - 1
            echo(f"{name}: {modules[0].language()}, {len(found.bodies)} functions, {100 * change:+.2f}%")


if __name__ == "__main__":
    entry()
