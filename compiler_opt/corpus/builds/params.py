"""Objects that a link consists of, by its parameter file: the words of a linker's (or a driver's) command.

What is not an option, nor the value of one, is an input: an object, an archive, or something that has no modules. Where
it stands, such as between `--start-lib` and `--end-lib`, makes no difference: all of it was compiled.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compiler_opt.corpus.builds import archive, response_files
from compiler_opt.corpus.builds.objects import (
    ARCHIVE,
    OBJECT_SUFFIXES,
    OTHER,
    THIN_ARCHIVE,
    Build,
    ObjectFile,
    checked_path,
    head_of,
    kind_of,
    name_below,
    normal,
    unique,
)
from compiler_opt.files import printable

WANTED = "the parameter file of a link, such as what the driver's command line has after '@'"

_SEPARATE = frozenset(
    """
    -o -L -l -T -m -z -e -u -y -Y -h -f -F -a -A -b -G -I -R -assert -dT
    -plugin -plugin-opt -soname -rpath -rpath-link -dynamic-linker -init -fini -Map -version-script -dynamic-list
    -default-script -script -defsym -entry -undefined -library -library-path -output -format -oformat -sysroot
    -image-base -sort-section -section-start -Ttext -Tdata -Tbss -Trodata-segment -Ttext-segment -retain-symbols-file
    -symbol-ordering-file -call-graph-ordering-file -exclude-libs -trace-symbol -wrap -reproduce -just-symbols
    -mllvm -thinlto-cache-dir -thinlto-cache-policy -lto-sample-profile
    -target -arch -isystem -include -isysroot -Xclang -Xassembler -Xpreprocessor -framework -install_name
    """.split()
)
"""Options of linkers and drivers that take the next word, when it is not in theirs after `=`; with one dash or two."""


def objects_of_params(path: Path, base: Path | None = None) -> Build:
    """The objects of a link.

    Args:
      path: the parameter file; quoted as lld and clang read it, and `@file` stands for another one.
      base: the folder that paths in it, and module names, are relative to; by default the working directory.

    Raises:
      CorpusError: a file cannot be read or is too large, files name each other, or an archive is damaged.
    """
    return objects_of_words(response_files.read(path, WANTED), base or Path.cwd(), str(path))


def objects_of_words(command: Sequence[str], base: Path, where: str) -> Build:
    """The objects among the words of a link, see `objects_of_params`; `where` starts messages."""
    inputs, options = parse(response_files.expand(command, base, where))
    build = objects_of_inputs(inputs, base, where)
    return dataclasses.replace(build, link_options=tuple(options))


def objects_of_inputs(inputs: Iterable[str], base: Path, where: str) -> Build:
    """The objects among the inputs of a link: files and members of archives, each once.

    Raises:
      CorpusError: an archive is damaged; `where` starts messages.
    """
    base = normal(base)
    objects: list[ObjectFile] = []
    skipped: dict[str, list[str]] = {}
    for text in dict.fromkeys(inputs):
        path = normal(base / checked_path(text, where))
        name = name_below(base, path)
        if name is None:
            skipped.setdefault(f"inputs outside of {printable(base)}", []).append(text)
            continue
        kind = _kind_of(path)
        if kind is None:
            skipped.setdefault("inputs that are not there", []).append(text)
        elif kind in (ARCHIVE, THIN_ARCHIVE):
            objects += archive.objects_of_archive(path, base)
        elif kind == OTHER:
            skipped.setdefault("inputs that are no objects", []).append(text)
        else:
            objects.append(ObjectFile(path, name))
    return Build(unique(objects, where), skipped)


def parse(command: Iterable[str]) -> tuple[list[str], list[str]]:
    """Inputs and options of a link; a value that is a word of its own follows its option."""
    inputs: list[str] = []
    options: list[str] = []
    remaining = _linker_words(command)
    for word in remaining:
        if not word.startswith("-"):
            inputs.append(word)
            continue
        options.append(word)
        if word in _SEPARATE or (word.startswith("--") and word[1:] in _SEPARATE):
            options += (value for value in (next(remaining, None),) if value is not None)
    return inputs, options


def _kind_of(path: Path) -> str | None:
    """What an input is; None when it cannot be read, except for objects, which are named when they are extracted."""
    try:
        return kind_of(head_of(path), path.name)
    except OSError:
        return kind_of(b"", path.name) if path.name.endswith(OBJECT_SUFFIXES) else None


def _linker_words(command: Iterable[str]) -> Iterator[str]:
    """The words that the linker gets: `-Wl,a,b` and `-Xlinker a` are a driver's way to hand them on."""
    words_given = list(command)
    is_driver = any(word == "-Xlinker" or word.startswith(_OF_DRIVERS) for word in words_given)
    remaining = iter(words_given)
    for word in remaining:
        if word.startswith("-Wl,"):
            yield from (part for part in word[4:].split(",") if part)
        elif word == "-Xlinker":
            yield from (part for part in (next(remaining, None),) if part)
        elif is_driver and word.startswith(("-O", "-march=", "-mcpu=")):
            yield from _handed_on(word)
        elif word:
            yield word
    if is_driver and _KINDS.isdisjoint(words_given):
        yield "-pie"  # As drivers of today's distributions link.


def _handed_on(word: str) -> Iterator[str]:
    """What a driver makes of its own options for link-time optimisation; the linker's `-O2` is something else."""
    if word.startswith("-O"):
        yield f"--plugin-opt=O{_LEVELS.get(word[2:], word[2:])}"
    else:
        yield f"--plugin-opt=mcpu={word.partition('=')[2]}"


_OF_DRIVERS = ("-Wl,", "-flto", "-fuse-ld=", "--target=")
_KINDS = frozenset({"-pie", "-no-pie", "-nopie", "-shared", "-static", "-static-pie", "-r"})
_LEVELS = {"": "1", "g": "1", "s": "2", "z": "2", "fast": "3", "4": "3"}
