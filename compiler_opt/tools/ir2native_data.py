"""What the commands of the model of native sizes share: collecting a corpus's functions."""

from pathlib import Path

from absl import flags

from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models.ir2native import dataset
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point

flags.disclaim_key_flags()


def sample_flag() -> "flags.FlagHolder[int | None]":
    """`--modules_per_project`."""
    return flags.DEFINE_integer(
        "modules_per_project", None, "At most so many modules of each project, drawn at random; by default all.", 1
    )


def collect(
    corpus: Corpus,
    toolchain: Toolchain,
    folder: Path,
    name: str,
    modules_per_project: int | None,
    seed: int,
    *,
    num_workers: int,
) -> Dataset:
    """The functions of a corpus, with a progress bar; names modules that fail, and goes on with the others.

    Raises:
      CorpusError: most modules fail; the message has the first reason.
    """
    modules = corpus.sample(modules_per_project, seed).modules
    found, reasons = [], []
    collected = dataset.collect(modules, toolchain, folder, num_workers=num_workers)
    for each in progress_bar(collected, name, len(modules), unit="module"):
        if each.functions is not None:
            found.append(each.functions)
        else:
            reasons.append(each.failure or "")
    for line in entry_point.first_of(f"{name}: not compiled", reasons):
        entry_point.warn(line)
    if len(reasons) * 2 > len(modules):
        raise CorpusError(f"{corpus.root}: {len(reasons)} of {len(modules)} modules failed; the first: {reasons[0]}")
    return Dataset(found)
