"""Lists the objects of a link from its parameter file: the arguments of a linker or driver.

An argument that is neither an option nor an option's value is an input: an object, an archive, or something without
modules. Its position, such as between `--start-lib` and `--end-lib`, does not matter: all inputs were compiled.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from compiler_opt.corpus.builds import archive, response_files
from compiler_opt.corpus.builds.objects import (
    ARCHIVE,
    OTHER,
    THIN_ARCHIVE,
    Build,
    ObjectFile,
    kind_of_file,
    name_below,
    normal,
    unique,
)
from compiler_opt.corpus.validation import checked_path
from compiler_opt.files import printable

WANTED = "the parameter file of a link, which the driver's command line names after '@'"

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
"""Options of linkers and drivers that take a value: the next argument, unless joined by `=`; with one or two dashes."""


def objects_of_params(path: Path, base: Path | None = None) -> Build:
    """Lists the objects of a link by its parameter file, quoted as for lld and clang; it may include others by `@file`.

    `base` is the folder that its paths and module names are relative to; by default the working directory.

    Raises:
      CorpusError: a file cannot be read, is too large or includes itself, or an archive is damaged.
    """
    base, where = base or Path.cwd(), str(path)
    inputs, options = parse(response_files.expand(response_files.read(path, WANTED), base, where))
    build = objects_of_inputs(inputs, base, where)
    return dataclasses.replace(build, link_options=tuple(options))


def objects_of_inputs(inputs: Iterable[str], base: Path, where: str) -> Build:
    """Lists the objects among the inputs of a link: files and members of archives, each once.

    Raises CorpusError, whose message starts with `where`, if an archive is damaged.
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
        kind = kind_of_file(path)
        if kind is None:
            skipped.setdefault("missing inputs", []).append(text)
        elif kind in (ARCHIVE, THIN_ARCHIVE):
            objects += archive.objects_of_archive(path, base)
        elif kind == OTHER:
            skipped.setdefault("inputs that are not objects", []).append(text)
        else:
            objects.append(ObjectFile(path, name))
    return Build(unique(objects, where), skipped)


def parse(command: Iterable[str]) -> tuple[list[str], list[str]]:
    """Splits the arguments of a link into inputs and options, with the separate values of options behind them."""
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


def _linker_words(command: Iterable[str]) -> Iterator[str]:
    """The linker's arguments; `-Wl,a,b` and `-Xlinker a` are how a driver passes them on."""
    given = list(command)
    is_driver = any(word == "-Xlinker" or word.startswith(_DRIVER_PREFIXES) for word in given)
    remaining = iter(given)
    for word in remaining:
        if word.startswith("-Wl,"):
            yield from (part for part in word[4:].split(",") if part)
        elif word == "-Xlinker":
            yield from (part for part in (next(remaining, None),) if part)
        elif is_driver and word.startswith(("-O", "-march=", "-mcpu=")):
            yield _passed_on(word)
        elif word:
            yield word
    if is_driver and _OUTPUT_KINDS.isdisjoint(given):
        yield "-pie"  # The default of current distributions' drivers.


def _passed_on(option: str) -> str:
    """What a driver passes on to link-time optimisation for an option; the linker's own `-O2` means something else."""
    if option.startswith("-O"):
        return f"--plugin-opt=O{_LEVELS.get(option[2:], option[2:])}"
    return f"--plugin-opt=mcpu={option.partition('=')[2]}"


_DRIVER_PREFIXES = ("-Wl,", "-flto", "-fuse-ld=", "--target=")
_OUTPUT_KINDS = frozenset({"-pie", "-no-pie", "-nopie", "-shared", "-static", "-static-pie", "-r"})
_LEVELS = {"": "1", "g": "1", "s": "2", "z": "2", "fast": "3", "4": "3"}
