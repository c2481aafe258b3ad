"""Extracts basic blocks of machine code, with their cycles by llvm-mca, from a corpus or several.

    compiler_opt cost_model blocks --data_path=$CORPORA --output_dir=$BLOCKS

compiles all modules of $CORPORA/train, validation and held_out (as fetch_corpus makes them; or $CORPORA is one corpus),
each at its own optimisation level, and writes $BLOCKS/train.npz and so on. Blocks are distinct by their bytes, and no
block is in two files. After an interruption, the same command continues. docs/throughput.md describes the files.
"""

from collections.abc import Mapping
from pathlib import Path

from absl import flags

from compiler_opt.corpus.description import DESCRIPTION_NAME, Corpus
from compiler_opt.corpus.remote import is_url
from compiler_opt.cost_models.throughput.blocks import save_blocks
from compiler_opt.cost_models.throughput.extraction import PRECEDENCE, BlockExtractor, Counts, sample, split_blocks
from compiler_opt.cost_models.throughput.instructions import require_decoder
from compiler_opt.cost_models.throughput.mca import Labeller
from compiler_opt.errors import CorpusError
from compiler_opt.files import exclusive_directory
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the files of blocks.")
_CLANG_PATH = shared_flags.clang_path()
_CPU = flags.DEFINE_string("cpu", "skylake", "The processor that llvm-mca simulates; llvm-mca -mcpu=help lists them.")
_MODULES = flags.DEFINE_integer(
    "modules_per_project",
    None,
    "Only so many modules of each project, at random; by default all.",
    1,
)
_MAX_BLOCKS = flags.DEFINE_integer("max_blocks", None, "Label at most so many blocks of each corpus, at random.", 1)
_SEED = shared_flags.seed("the choice of modules and blocks")
_TIMEOUT_S = flags.DEFINE_float("timeout_s", 300.0, "Seconds that the compiler may take for a module.", 1.0)
_NUM_WORKERS = shared_flags.num_workers()


def _corpora() -> Mapping[str, Corpus]:
    """The corpora by the names of their files."""
    given = str(_CORPUS.data_path.value)
    if not is_url(given) and not (Path(given) / DESCRIPTION_NAME).exists():
        splits = [split for split in PRECEDENCE if (Path(given) / split / DESCRIPTION_NAME).exists()]
        if splits:
            corpora = {split: _CORPUS.load_other(str(Path(given) / split)) for split in reversed(splits)}
            return {split: _sampled(corpus) for split, corpus in corpora.items()}
    corpus = _CORPUS.load()
    name = Path(given).absolute().name
    return {name if name in PRECEDENCE else "blocks": _sampled(corpus)}


def _sampled(corpus: Corpus) -> Corpus:
    """The modules to take."""
    return _CORPUS.selected(corpus).sample(_MODULES.value, _SEED.value)


def _why_none(count: Counts) -> str:
    if count.failures:
        return count.failures[0]
    if not count.unique:
        return f"of {count.blocks} blocks, {count.elsewhere} are in other splits, and {count.refused} cannot be decoded"
    return f"llvm-mca refuses all of {count.unlabelled}"


@entry_point.command
def entry() -> None:
    require_decoder()
    corpora = _corpora()
    toolchain = shared_flags.compiler(_CLANG_PATH.value, *corpora.values())
    for tool in ("llvm-mc", "llvm-mca", "llvm-readobj"):
        toolchain.tool(tool)
    output = _OUTPUT_DIR.value
    labeller = Labeller(toolchain, _CPU.value)
    labeller.check()
    with exclusive_directory(output, "--output_dir"):
        extractor = BlockExtractor(output, labeller, entry_point.num_workers(_NUM_WORKERS.value), _TIMEOUT_S.value)
        num_modules = sum(len(corpus.modules) for corpus in corpora.values())
        with progress_bar(total=num_modules, description="compiling", unit="module") as bar:
            parts = {split: extractor.parts(corpus.modules, bar.update) for split, corpus in corpora.items()}
        blocks, counts = split_blocks(parts)
        num_labelled: dict[str, int] = {}
        blocks = {split: sample(each, _MAX_BLOCKS.value, _SEED.value) for split, each in blocks.items()}
        with progress_bar(total=sum(map(len, blocks.values())), description="labelling", unit="block") as bar:
            for split, each in blocks.items():
                labelled, counts[split].unlabelled = extractor.label(each, bar.update)
                if not labelled:
                    raise CorpusError(f"{corpora[split].root}: gives no blocks: {_why_none(counts[split])}")
                num_labelled[split] = len(labelled)
                save_blocks(output / f"{split}.npz", labelled)
    for split, count in counts.items():
        entry_point.echo(
            f"{output / split}.npz: {num_labelled[split]} blocks of "
            f"{count.modules} modules; read {count.blocks}, not decoded {count.refused}, distinct "
            f"{count.unique + count.elsewhere}, of which {count.elsewhere} are in another file, refused by llvm-mca "
            f"{count.unlabelled}"
        )
        for line in entry_point.first_of(f"{split}: left out", count.failures):
            entry_point.warn(line)


if __name__ == "__main__":
    entry()
