"""Flags that several commands have; each belongs to the module that defines it here, whose `--help` shows it.

_CORPUS = shared_flags.CorpusFlags()
_CLANG_PATH = shared_flags.clang_path()
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt import problem as problems
from compiler_opt.collect.cluster.ray_workers import ray_pool
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.undecided import why_undecided
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_folder_writable
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tools import entry_point, ml_compiler_opt

flags.disclaim_key_flags()

TRUST_CORPUS = (
    "Compile with all options that the corpus recorded, including those that load plugins or read and write other "
    "files; only input and output are replaced. For corpora of your own."
)


NONE = "none"
"""No policy, or no options of LLVM's passes."""

_POLICY_FORMS = "A folder, or pretrained:NAME for a policy that ships with compiler_opt."


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


class _NumbersParser(flags.ArgumentParser[Any]):
    """Parses numbers that are separated by commas."""

    def __init__(self, number: type[int] | type[float]):
        self._number = number

    def parse(self, argument: str | Sequence[float]) -> list[float]:
        words: Sequence[Any] = argument.split(",") if isinstance(argument, str) else argument
        try:
            return [self._number(word) for word in words]
        except ValueError:
            raise ValueError("expected numbers, separated by commas") from None


def numbers(name: str, default: Sequence[float], number: type[int] | type[float], text: str) -> "flags.FlagHolder[Any]":
    """A flag for a list of numbers of one type."""
    shown = ",".join(f"{each:g}" for each in default)
    return flags.DEFINE(_NumbersParser(number), name, default, f"Comma-separated {text}; by default {shown}.")


def path(name: str, text: str) -> "flags.FlagHolder[Path | None]":
    """A flag for a path; None if it is not given."""
    return flags.DEFINE(_PathParser(), name, None, text)


def required_path(name: str, text: str) -> "flags.FlagHolder[Path]":
    """A flag for a path that must be given."""
    return flags.DEFINE(_PathParser(), name, None, text, required=True)


def policy(name: str, text: str, *, required: bool = False) -> "flags.FlagHolder[Any]":
    """A flag for the folder of a policy, or for `pretrained:NAME`; see `pretrained.folder`."""
    return flags.DEFINE(_PolicyParser(), name, None, f"{text} {_POLICY_FORMS}", required=required)


def policies(name: str, text: str, *, required: bool = False) -> "flags.FlagHolder[Any]":
    """A flag for several policies, as `policy`; an empty list if none is given."""
    default: list[str] | None = None if required else []
    text = f"{text} {_POLICY_FORMS}"
    return flags.DEFINE_multi(_PolicyParser(), flags.ArgumentSerializer(), name, default, text, required=required)


def compiler(clang: str | None, *corpora: Corpus, embeddings: Ir2VecVocabulary | None = None) -> Toolchain:
    """The compiler, probed with embeddings (see `probe`), that corpora are to be compiled with.

    Raises:
      CorpusError: it is older than the one that wrote a corpus.
      ToolchainError: there is no usable compiler, or it supports no embeddings.
    """
    toolchain = probe(clang, embeddings)
    for corpus in corpora:
        corpus.check_compiler(toolchain.version, toolchain.clang)
    return toolchain


class CorpusFlags:
    """`--data_path`, `--trust_corpus` and, for most commands, `--module_filter`; for some `--projects`."""

    def __init__(self, *, module_filter: bool = True, projects: bool = False, required: bool = True) -> None:
        self.data_path = flags.DEFINE_string(
            "data_path",
            None,
            "The corpus: a folder, or a URL such as s3://BUCKET/CORPUS, which needs fsspec and is cached locally.",
            required=required,
        )
        self._trust_corpus = flags.DEFINE_bool("trust_corpus", False, TRUST_CORPUS)
        self._module_filter: flags.FlagHolder[str | None] | None = None
        if module_filter:
            self._module_filter = flags.DEFINE_string(
                "module_filter", None, "Only modules whose names match this regular expression anywhere."
            )
        self._projects: flags.FlagHolder[list[str]] | None = None
        if projects:
            self._projects = flags.DEFINE_list(
                "projects", [], "Comma-separated projects of the corpus; by default all."
            )

    @property
    def pattern(self) -> str | None:
        return self._module_filter.value if self._module_filter is not None else None

    @property
    def is_trusted(self) -> bool:
        return bool(self._trust_corpus.value)

    def load(self, problem_config: ProblemConfig = ProblemConfig()) -> Corpus:
        """Loads the corpus with changed flags, all of its modules.

        Raises:
          CorpusError: there is none, or it is not usable.
          ConfigError: the flags cannot be changed so, or there is no `--data_path`.
        """
        if self.data_path.value is None:
            raise ConfigError("expected --data_path, the corpus; see --help")
        return self.load_other(self.data_path.value, problem_config)

    def load_other(self, path: str, problem_config: ProblemConfig = ProblemConfig()) -> Corpus:
        """Loads another corpus under the same flags; for arguments and errors see `load`."""
        corpus = Corpus.load(path, trusted=self.is_trusted)
        return corpus.configured(problem_config) if problem_config else corpus

    def selected(self, corpus: Corpus) -> Corpus:
        """The modules of a corpus that pass `--module_filter` and are of `--projects`.

        Raises:
          ConfigError: there are none, or the filter is not a regular expression.
        """
        corpus = corpus.filter(self.pattern) if self.pattern else corpus
        projects = self._projects.value if self._projects is not None else []
        return corpus.select(projects=projects) if projects else corpus

    def read(self, clang: str | None) -> tuple[Corpus, Toolchain]:
        """The selected modules and the compiler for them; for errors see `load`, `selected` and `compiler`."""
        corpus = self.selected(self.load())
        return corpus, compiler(clang, corpus)


def configured(corpus: Corpus, given: ProblemConfig, policy: LearnedPolicy | None, policy_name: str) -> Corpus:
    """The corpus with the flags that gin gives or, if it gives none, with those that the policy was trained with.

    Raises:
      ConfigError: the flags cannot be changed so.
    """
    if given or policy is None:
        return corpus.configured(given) if given else corpus
    recorded = ProblemConfig.from_json(policy.weights.metadata)
    try:
        # The policy is untrusted, even if the corpus is trusted.
        recorded.check()
    except ConfigError as error:
        raise ConfigError(f"--policy_path={policy_name}: was trained with flags that cannot be used: {error}") from None
    return corpus.configured(recorded) if recorded else corpus


def clang_path(
    text: str = "The clang to use; by default the newest one installed.",
) -> "flags.FlagHolder[str | None]":
    """`--clang_path`, for `probe`."""
    return flags.DEFINE_string("clang_path", None, text)


def llvm_size_path() -> "flags.FlagHolder[str | None]":
    """`--llvm_size_path`, which commands of google/ml-compiler-opt have; `note_unneeded` says that it has no use."""
    return flags.DEFINE_string("llvm_size_path", None, f"Has no use: {ml_compiler_opt.UNNEEDED['llvm_size_path']}.")


def note_unneeded(flag: "flags.FlagHolder[str | None]") -> None:
    """Says, if a flag that has no use is given, that it has none."""
    if flag.value is not None:
        entry_point.note(f"--{flag.name} has no use here: {ml_compiler_opt.UNNEEDED[flag.name]}")


class CheckFlag:
    """`--check`, on by default, of a command that makes a corpus; `--nocheck` takes the input as LLVM's script does."""

    def __init__(self, unchecked: str):
        """`unchecked` says what is taken as it is."""
        self._unchecked = unchecked
        self._flag = flags.DEFINE_bool(
            "check", True, f"Check the corpus while it is made; --nocheck takes {unchecked}, as LLVM's mlgo-utils do."
        )

    def read(self) -> bool:
        """The flag's value; warns if nothing is checked."""
        if not self._flag.value:
            entry_point.warn(
                f"--nocheck: takes {self._unchecked}; whoever compiles this corpus finds out what is wrong"
            )
        return bool(self._flag.value)


def num_workers(what: str = "Compilers") -> "flags.FlagHolder[int | None]":
    """`--num_workers`; None for one per CPU."""
    return flags.DEFINE_integer("num_workers", None, f"{what} to run at a time; by default one per CPU.", 1)


class WorkerManagerFlags:
    """`--worker_manager` and `--ray_address`."""

    def __init__(self) -> None:
        self._manager = flags.DEFINE_enum(
            "worker_manager",
            "local",
            ["local", "ray"],
            "Where to compile: on this machine, or on the nodes of a Ray cluster (docs/cluster.md), with a worker for "
            "each of its CPUs by default.",
        )
        self._address = flags.DEFINE_string(
            "ray_address",
            None,
            "The Ray cluster: auto (the default) for the one that this machine belongs to, or HOST:PORT of its head.",
        )

    def open_pool(self) -> Callable[..., contextlib.AbstractContextManager[WorkerPool]]:
        """What opens a pool, given the arguments of `WorkerPool`; raises ConfigError if the flags contradict."""
        address = self._address.value
        if self._manager.value == "ray":
            return functools.partial(ray_pool, "auto" if address is None else address)
        if address is not None:
            raise ConfigError(f"--ray_address={address}: has a meaning with --worker_manager=ray only; give that, too")
        return WorkerPool


def clang(flag: "flags.FlagHolder[str | None]", in_gin: str | None) -> str | None:
    """The value of `--clang_path` or, if that is not given, gin's `command.clang_path`; None for neither.

    Raises:
      ConfigError: they differ.
    """
    if flag.value is not None and in_gin is not None and flag.value != in_gin:
        raise ConfigError(f"--clang_path={flag.value}: gin names another, {in_gin}; leave one of them out")
    return in_gin if flag.value is None else flag.value


def warn_undecided(corpus: Corpus, toolchain: Toolchain) -> None:
    """Warns of a result that says nothing, since no module had a decision, if the corpus was built so."""
    if reason := why_undecided(corpus.modules, toolchain.clang):
        entry_point.warn(f"{corpus.root}: no module has any decisions, so the result says nothing; {reason}")


class ExplicitTempsFlags:
    """`--explicit_temps_dir` and `--explicit_temps_mb`, of commands that compile a corpus."""

    def __init__(self) -> None:
        self._folder = path(
            "explicit_temps_dir",
            "Folder to keep the files of all compilations in, as MODULE/POLICY-SEED: command, input, object, log, end "
            "of stderr. By default they are removed.",
        )
        self._max_mb = flags.DEFINE_integer(
            "explicit_temps_mb", 1024, "How large --explicit_temps_dir may become, in megabytes; then it is left.", 1
        )

    def compilation_files(self) -> CompilationFiles | None:
        """Where to keep files, if anywhere; raises OutputError if nothing can be written there."""
        if self._folder.value is None:
            return None
        check_folder_writable(self._folder.value)
        return CompilationFiles(self._folder.value.resolve(), self._max_mb.value * 1_000_000)


class TaskFlag:
    """`--compile_task`, the problem; gin files say for which one they are by `command.compile_task`."""

    def __init__(self, default: str = "that of the gin files, or inlining"):
        self._flag = flags.DEFINE_string(
            "compile_task",
            None,
            "The problem: inlining, regalloc_eviction, regalloc_priority, or MODULE:PROBLEM for one of your own; by "
            f"default {default}.",
        )

    @property
    def given(self) -> str | None:
        """What the user gave; None for nothing."""
        value: str | None = self._flag.value
        return value

    def load(self, in_gin: str = "", recorded: Callable[[], AnyProblem] | None = None) -> AnyProblem:
        """The problem that the flag names, else the recorded one, else gin's, else inlining.

        Args:
          in_gin: gin's `command.compile_task`.
          recorded: loads the problem of the trace that is read, if any.

        Raises:
          ConfigError: there is no such problem, or gin's settings are for other decisions.
          PolicyError: the recorded problem is not installed.
        """
        if self._flag.value is not None:
            problem, origin = problems.load(self._flag.value), f"--compile_task={self._flag.value}"
        elif recorded is not None:
            problem = recorded()
            origin = f"the trace is for {problem.name}"
        else:
            return problems.load(in_gin or "inlining")
        check_task(problem, in_gin, origin)
        return problem


def check_task(problem: AnyProblem, in_gin: str, origin: str) -> None:
    """Raises ConfigError, whose message begins with `origin`, if gin's settings are for other decisions."""
    if in_gin and problems.load(in_gin).decision.advisor != problem.decision.advisor:
        raise ConfigError(
            f"{origin}: the gin settings are for {in_gin} (command.compile_task); give those of "
            f"gin_configs/{problem.decision.advisor.problem}"
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


def json() -> "flags.FlagHolder[bool]":
    """For commands that hand their result to `entry_point.print_json`."""
    return flags.DEFINE_bool("json", False, "Print the result as JSON to stdout, everything else to stderr.")


def seed(what: str, default: int | None = 0) -> "flags.FlagHolder[Any]":
    """`--seed`."""
    return flags.DEFINE_integer("seed", default, f"Seed of {what}.", 0)
