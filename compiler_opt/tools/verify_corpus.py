"""Checks that a corpus reproduces the objects of the build that it was extracted from, byte for byte.

    compiler_opt verify_corpus --data_path=$CORPUS --original_dir=$BUILD

compiles each module (or a --sample) by its recorded command and compares the object with $BUILD/MODULE, section by
section, except .llvmbc and .llvmcmd, which the build added for the corpus. Use the clang of the build. Exit status: 0
if every module is identical or differs for a known reason, 1 otherwise.
"""

from collections.abc import Sequence

from absl import flags

from compiler_opt.collect import verify
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.verify import Verification
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_writable, write_json
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_CORPUS = shared_flags.CorpusFlags(module_filter=False)
_ORIGINAL_DIR = shared_flags.required_path(
    "original_dir", "The folder of the build's objects, to which module names are relative."
)
_SAMPLE = flags.DEFINE_integer("sample", None, "Number of modules to check, sampled at random; by default all.", 1)
_SEED = shared_flags.seed("the sample")
_CLANG_PATH = shared_flags.clang_path("The clang of the build; by default the newest one installed.")
shared_flags.json()
_NUM_WORKERS = shared_flags.num_workers()
_TIMEOUT_S = flags.DEFINE_float("timeout_s", 300.0, "Time limit of one compilation, in seconds.", 0.1)
_OUTPUT_PATH = shared_flags.path("output_path", "A JSON file to write, which lists every module that is not identical.")

_MAX_SHOWN = 20


@entry_point.command
def entry() -> int:
    output = _OUTPUT_PATH.value
    if output is not None:
        check_writable(output)
    original_dir = _ORIGINAL_DIR.value
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    if not original_dir.is_dir():
        raise ConfigError(f"--original_dir={original_dir}: no such folder; give the one of the build's objects")
    modules = verify.sample(corpus.modules, _SAMPLE.value, _SEED.value)
    settings = RolloutSettings(timeout_s=_TIMEOUT_S.value)
    with WorkerPool(toolchain, INLINING_PROBLEM, _NUM_WORKERS.value) as pool:
        found = verify.verify(modules, original_dir, toolchain, pool, settings)
        shown = progress_bar(found, total=len(modules), unit="module")
        results = sorted(shown, key=lambda result: result.module)
    entry_point.echo(_summary(results, len(corpus.modules), toolchain))
    content = _to_json(results, toolchain)
    if output is not None:
        write_json(output, content)
    entry_point.print_json(content)
    return 0 if all(result.is_good for result in results) else 1


def _summary(results: Sequence[Verification], num_modules: int, toolchain: Toolchain) -> str:
    identical = sum(result.is_identical for result in results)
    explained = [result for result in results if result.explanation is not None]
    others = [result for result in results if not result.is_good]
    sampled = f" (a sample of {num_modules}, seed {_SEED.value})" if len(results) < num_modules else ""
    lines = [
        f"{_CORPUS.data_path.value}: {identical} of {len(results)} modules{sampled} are bit-identical "
        f"({identical / len(results):.1%}), {len(explained)} differ for a known reason, {len(others)} otherwise",
        f"compiled by {toolchain.version_text}; not compared: {', '.join(verify.IGNORED_SECTIONS)}",
    ]
    for heading, group in (("not identical", others), ("explained", explained)):
        reasons = [f"{result.module}: {result.describe()}" for result in group]
        lines += entry_point.first_of(heading, reasons, _MAX_SHOWN, remedy="; --output_path lists all")
    return "\n".join(lines)


def _to_json(results: Sequence[Verification], toolchain: Toolchain) -> dict[str, object]:
    return {
        "compiler": toolchain.identity(),
        "ignored_sections": list(verify.IGNORED_SECTIONS),
        "num_modules": len(results),
        "num_identical": sum(result.is_identical for result in results),
        "others": [
            {
                "module": result.module,
                "explanation": result.explanation,
                "failure": result.failure,
                "differences": [difference.describe() for difference in result.differences],
            }
            for result in results
            if not result.is_identical
        ],
    }


if __name__ == "__main__":
    entry()
