"""Trains a vocabulary of IR2Vec embeddings on a corpus, for policies that observe them.

    compiler_opt generate_ir2vec_vocab --data_path=$CORPUS --output_path=ir2vec_vocabulary.json

writes one JSON file, as LLVM reads it: a vector for each opcode, type and kind of argument. The same corpus, compiler
and seed give the same file. docs/ir2vec.md describes what it is for.
"""

from absl import flags

from compiler_opt.corpus import ir2vec_vocabulary
from compiler_opt.errors import CorpusError
from compiler_opt.files import check_writable, write_json
from compiler_opt.llvm.ir2vec import MAX_DIMENSIONS, read_vocabulary
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_PATH = shared_flags.required_path("output_path", "The file to write.")
_CLANG_PATH = shared_flags.clang_path("The clang, 22 or newer, whose llvm-ir2vec to use; by default the newest one.")
_DIMENSIONS = flags.DEFINE_integer("dimensions", 75, "Numbers in each vector.", 1, MAX_DIMENSIONS)
_EPOCHS = flags.DEFINE_integer("epochs", 1000, "Passes over the corpus's different triplets.", 1)
_NUM_WORKERS = shared_flags.num_workers("Processes")
_SEED = shared_flags.seed("the training")


@entry_point.command
def entry() -> None:
    output = _OUTPUT_PATH.value
    check_writable(output)
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    tool = toolchain.tool("llvm-ir2vec")
    names = ir2vec_vocabulary.read_entities(tool)
    found = ir2vec_vocabulary.triplets(corpus.modules, tool, entry_point.num_workers(_NUM_WORKERS.value))
    results = list(progress_bar(found, "reading", len(corpus.modules), unit="module"))
    failures = [each for each in results if isinstance(each, str)]
    facts = [each for each in results if not isinstance(each, str)]
    if not any(map(len, facts)):
        raise CorpusError(f"--data_path: none of {len(results)} modules has code; {(failures or ['all are empty'])[0]}")
    vectors, better = ir2vec_vocabulary.train_vectors(
        facts, len(names), dimensions=_DIMENSIONS.value, epochs=_EPOCHS.value, seed=_SEED.value
    )
    content = ir2vec_vocabulary.vocabulary_json(names, vectors)
    write_json(output, content)
    vocabulary, num_vectors = read_vocabulary(output), sum(map(len, content.values()))
    if failures:
        entry_point.echo(f"{len(failures)} modules cannot be read, such as {failures[0]}")
    entry_point.echo(
        f"{output}: {num_vectors} vectors of {vocabulary.dimensions} numbers, SHA-256 {vocabulary.sha256[:16]}; "
        f"{better:.0%} of the triplets are better than a false one"
    )


if __name__ == "__main__":
    entry()
