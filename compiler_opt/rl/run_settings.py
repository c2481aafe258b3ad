"""The settings of a run as text, so that a resumed run can report which of them have changed."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.files import printable, shown
from compiler_opt.llvm.toolchain import Toolchain

_LOG = logging.getLogger(__name__)

_FIXED = ("compile_task", "train_eval.algorithm")
"""Settings that a run keeps: what it has learned means nothing under others."""


def describe(problem: str, corpus: Corpus, toolchain: Toolchain, configs: Mapping[str, Any]) -> dict[str, str]:
    """Everything that the result of a run depends on, as text by the user's names.

    Args:
      problem: name of what is decided.
      corpus: the modules to train on.
      toolchain: the compiler.
      configs: dataclasses by their names in gin.
    """
    names = "\n".join(module.name for module in corpus.modules)
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()
    found: dict[str, Any] = {
        "compile_task": problem,
        "corpus": printable(f"{len(corpus.modules)} modules (names {digest[:8]}) of {corpus.root.resolve()}"),
        "compiler": f"{toolchain.clang}, {toolchain.version_text}",
    }
    for name, config in {**configs, "problem_config": corpus.problem_config}.items():
        found |= {f"{name}.{field}": value for field, value in dataclasses.asdict(config).items()}
    return {name: value if isinstance(value, str) else repr(value) for name, value in found.items()}


def name_differences(root_dir: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Logs each setting that has changed.

    Raises:
      ConfigError: the run cannot be resumed with the changed setting.
    """
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in different:
        was, is_now = (shown(values[name]) if name in values else "not set" for values in (before, now))
        if name in _FIXED:
            raise ConfigError(
                f"{root_dir}: holds a run whose {name} was {was}, and is {is_now} now; use that, or another --root_dir"
            )
        _LOG.warning("%s: continued with another %s: was %s, is %s", root_dir, name, was, is_now)
