"""The source language of a module, from its recorded options and its name."""

import itertools
from pathlib import Path

from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError

_LANGUAGES = {"c": "C", "c++": "C++", "objective-c": "Objective-C", "objective-c++": "Objective-C++", "rust": "Rust"}
_LANGUAGE_OF_SUFFIX = {
    ".c": "C",
    ".cc": "C++",
    ".cpp": "C++",
    ".cxx": "C++",
    ".C": "C++",
    ".rs": "Rust",
    ".m": "Objective-C",
}


def module_language(module: Module) -> str:
    """The source language of a module; `?` if unknown."""
    try:
        options = module.options()
    except CorpusError:
        return "?"
    recorded = dict(itertools.pairwise(options))
    if recorded.get("-x") in _LANGUAGES:
        return _LANGUAGES[recorded["-x"]]
    for name in (recorded.get("-main-file-name", ""), module.name, Path(module.name).stem):
        if Path(name).suffix in _LANGUAGE_OF_SUFFIX:
            return _LANGUAGE_OF_SUFFIX[Path(name).suffix]
    return "?"
