"""What entry points that read a corpus share: how their flags and gin lead to one.

_TRUST_CORPUS = flags.DEFINE_bool("trust_corpus", False, corpus_flags.TRUST_CORPUS)
corpus = corpus_flags.load(_DATA_PATH.value, trusted=_TRUST_CORPUS.value, problem_config=settings["problem_config"])
"""

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus

DATA_PATH = "a folder, or a URL such as s3://BUCKET/CORPUS, which takes fsspec and is kept in a local cache"
TRUST_CORPUS = (
    "The corpus is your own: compile with all of its recorded options, also those that load plugins or read and write "
    "other files, but for the ones that name input and output."
)
MODULE_FILTER = "Only modules in whose names this regular expression occurs."


def load(
    data_path: str, *, trusted: bool, problem_config: ProblemConfig = ProblemConfig(), module_filter: str | None = None
) -> Corpus:
    """The corpus that the flags describe.

    Args:
      data_path: where it is.
      trusted: whether `--trust_corpus` was given.
      problem_config: how gin changes its options.
      module_filter: which modules, see `Corpus.filter`; None or empty for all.

    Raises:
      CorpusError: there is none, or it is not usable.
      ConfigError: flags or filter make no sense.
    """
    corpus = Corpus.load(data_path, trusted=trusted)
    if problem_config:
        corpus = corpus.configured(problem_config)
    return corpus.filter(module_filter) if module_filter else corpus
