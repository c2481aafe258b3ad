"""Flags that several commands have; each belongs to the module that defines it here, whose `--help` shows it.

_CORPUS = shared_flags.CorpusFlags()
_CLANG_PATH = shared_flags.clang_path()
"""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus

flags.disclaim_key_flags()

TRUST_CORPUS = (
    "Compile with all options that the corpus recorded, including those that load plugins or read and write other "
    "files; only input and output are replaced. For corpora of your own."
)


class _PathParser(flags.ArgumentParser[Any]):
    """Parses paths that are not empty."""

    def parse(self, argument: str | Path) -> Path:
        if not argument:
            raise ValueError("expected a path")
        return Path(argument)


class _PolicyParser(flags.ArgumentParser[Any]):
    """Parses names and folders of policies, which are not empty."""

    def parse(self, argument: str) -> str:
        if not argument:
            raise ValueError("expected the folder of a policy, or pretrained:NAME")
        return argument


def path(name: str, text: str) -> "flags.FlagHolder[Path | None]":
    """A flag for a path; None if it is not given."""
    return flags.DEFINE(_PathParser(), name, None, text)


def required_path(name: str, text: str) -> "flags.FlagHolder[Path]":
    """A flag for a path that must be given."""
    return flags.DEFINE(_PathParser(), name, None, text, required=True)


def policy(name: str, text: str, *, required: bool = False) -> "flags.FlagHolder[Any]":
    """A flag for the folder of a policy, or for `pretrained:NAME`; see `pretrained.folder`."""
    text = f"{text} A folder, or pretrained:NAME for a policy that ships with compiler_opt."
    return flags.DEFINE(_PolicyParser(), name, None, text, required=required)


class CorpusFlags:
    """`--data_path`, `--trust_corpus` and, for most commands, `--module_filter`."""

    def __init__(self, *, module_filter: bool = True) -> None:
        self.data_path = flags.DEFINE_string(
            "data_path",
            None,
            "The corpus: a folder, or a URL such as s3://BUCKET/CORPUS, which needs fsspec and is cached locally.",
            required=True,
        )
        self._trust_corpus = flags.DEFINE_bool("trust_corpus", False, TRUST_CORPUS)
        self._module_filter: flags.FlagHolder[str | None] | None = None
        if module_filter:
            self._module_filter = flags.DEFINE_string(
                "module_filter", None, "Only modules whose names match this regular expression anywhere."
            )

    @property
    def pattern(self) -> str | None:
        return self._module_filter.value if self._module_filter is not None else None

    def load(self, problem_config: ProblemConfig = ProblemConfig()) -> Corpus:
        """Loads the corpus with changed flags, all of its modules.

        Raises:
          CorpusError: there is none, or it is not usable.
          ConfigError: the flags cannot be changed so.
        """
        return self.load_other(self.data_path.value, problem_config)

    def load_other(self, path: str, problem_config: ProblemConfig = ProblemConfig()) -> Corpus:
        """Loads another corpus under the same flags; for arguments and errors see `load`."""
        corpus = Corpus.load(path, trusted=self._trust_corpus.value)
        return corpus.configured(problem_config) if problem_config else corpus

    def filtered(self, corpus: Corpus) -> Corpus:
        """The modules of a corpus that pass `--module_filter`.

        Raises:
          ConfigError: none does, or it is not a regular expression.
        """
        return corpus.filter(self.pattern) if self.pattern else corpus


def clang_path(
    text: str = "The clang to use; by default the newest one installed.",
) -> "flags.FlagHolder[str | None]":
    """`--clang_path`, for `probe`."""
    return flags.DEFINE_string("clang_path", None, text)


def num_workers(what: str = "Compilers") -> "flags.FlagHolder[int | None]":
    """`--num_workers`; None for one per CPU."""
    return flags.DEFINE_integer("num_workers", None, f"{what} to run at a time; by default one per CPU.", 1)


def compile_task() -> "flags.FlagHolder[str]":
    """`--compile_task`, for `problem.load`."""
    return flags.DEFINE_string(
        "compile_task",
        "inlining",
        "The problem: inlining, regalloc_eviction, regalloc_priority, or MODULE:PROBLEM for one of your own.",
    )


def trace_task() -> "flags.FlagHolder[str | None]":
    """`--compile_task` of a command that reads a trace."""
    return flags.DEFINE_string(
        "compile_task", None, "The problem, or MODULE:PROBLEM for one of your own; by default the trace's."
    )


def margin(use: str) -> "flags.FlagHolder[float | None]":
    """`--margin`; None for the policy's own."""
    return flags.DEFINE_float(
        "margin",
        None,
        f"{use} with this margin instead of the policy's own: it leaves the compiler's default decision only where its "
        "two logits differ by at least this; 0: the network alone decides. For policies with binary actions.",
        lower_bound=0.0,
    )


def seed(what: str, default: int | None = 0) -> "flags.FlagHolder[Any]":
    """`--seed`."""
    return flags.DEFINE_integer("seed", default, f"Seed of {what}.", 0)
