"""Makes a corpus of a build that was compiled with `-Xclang -fembed-bitcode=all`.

    python -m compiler_opt.tools.extract_ir --input=$BUILD/compile_commands.json --input_type=json --output_dir=$CORPUS

The objects are those of a compilation database (json), of a link (params: what its driver or linker was given, as in
the `@file` of a link), of a tree of folders (directory), or of all links of a Bazel build (bazel_aquery: what `bazel
aquery --output=jsonproto` printed, with --obj_base_dir=$(bazel info execution_root)). Archives give their members, as
modules `libx.a/member.o`; an object that was linked of several gives `x.o.0`, `x.o.1`, ... What holds no module is
named with the reason, and left out.

Options, names and layout are those of LLVM's mlgo-utils.
"""

from pathlib import Path

import tqdm
from absl import flags, logging

from compiler_opt.corpus.builds import bazel_aquery, database, directory, params
from compiler_opt.corpus.builds.objects import Build, listed
from compiler_opt.corpus.making import extract, local_thinlto, sections
from compiler_opt.corpus.making.writing import MadeCorpus
from compiler_opt.errors import ConfigError
from compiler_opt.files import exclusive_directory
from compiler_opt.tools import entry_point, printing

_INPUT_TYPES = ("json", "params", "directory", "bazel_aquery")

_INPUT = flags.DEFINE_string(
    "input",
    None,
    "What describes the build: a file, or a folder for the type directory. May be left out with --thinlto_build=local: "
    "then it is the folder --obj_base_dir.",
)
_INPUT_TYPE = flags.DEFINE_enum(
    "input_type",
    "json",
    _INPUT_TYPES,
    "What --input is: json, a compilation database; params, the parameter file of a link; directory, a tree that holds "
    "objects; bazel_aquery, the actions of a Bazel build as JSON.",
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "The corpus folder to make.", required=True)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Objects read at a time; by default one per CPU.", 1)
_LLVM_OBJCOPY_PATH = flags.DEFINE_string(
    "llvm_objcopy_path", None, "Read objects with this llvm-objcopy, as is needed for Mach-O and COFF; ELF needs none."
)
_OBJ_BASE_DIR = flags.DEFINE_string(
    "obj_base_dir",
    None,
    "The folder that holds all objects; module names are relative to it, and so are relative paths in params and "
    "bazel_aquery. By default the 'directory' of each entry of a database, --input itself if it is a directory, and "
    "otherwise the working directory.",
)
_CMD_FILTER = flags.DEFINE_string(
    "cmd_filter", None, "Only take modules with an option in which this regular expression is found, e.g. ^-Oz$."
)
_CMD_SECTION_NAME = flags.DEFINE_string("cmd_section_name", sections.COMMAND_SECTION, "Section with the options.")
_BITCODE_SECTION_NAME = flags.DEFINE_string(
    "bitcode_section_name", sections.BITCODE_SECTION, "Section with the bitcode."
)
_THINLTO_BUILD = flags.DEFINE_enum(
    "thinlto_build",
    None,
    ["distributed", "local"],
    "The build is one with ThinLTO, and modules come with their indices. distributed: the objects are those of the "
    "backends, compiled with -mllvm -lto-embed-bitcode=post-merge-pre-opt (without -fembed-bitcode), which ran in "
    "--obj_base_dir. local: linked by lld with -Wl,--save-temps=import -Wl,--thinlto-emit-index-files; --input is the "
    "link's parameter file (params), whose options all modules are compiled with, or a folder (directory), for which "
    "-O2 and position-independent code are taken.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Write into a folder that is not empty.")

_LEVELS = {"debug": 1, "info": 0, "warning": -1, "error": -2, "critical": -3}


class _Verbosity(flags.ArgumentParser):
    """What absl takes as a number, LLVM's tool by name; below `warning` nothing is told of what was left out."""

    def parse(self, argument: str | int) -> int:
        text = str(argument).lower()
        return _LEVELS[text] if text in _LEVELS else int(text)


flags.FLAGS["verbosity"].parser = _Verbosity()


@entry_point.command
def entry() -> int:
    if _THINLTO_BUILD.value == "local":
        return _extract_local()
    if not _INPUT.value:
        raise ConfigError("--input: expected what describes the build, found nothing; see --help")
    build = _build(Path(_INPUT.value))
    for what, paths in build.skipped.items():
        _tell(f"skipped: {len(paths)} {what} ({listed(paths)})")
    objects = build.objects
    output_dir = Path(_OUTPUT_DIR.value)
    with (
        exclusive_directory(output_dir, "--output_dir"),
        tqdm.tqdm(total=len(objects), unit="object", dynamic_ncols=True) as bar,
    ):
        extraction = extract.extract(
            objects,
            output_dir,
            num_workers=entry_point.num_workers(_NUM_WORKERS.value),
            cmd_filter=_CMD_FILTER.value,
            llvm_objcopy=Path(_LLVM_OBJCOPY_PATH.value) if _LLVM_OBJCOPY_PATH.value else None,
            bitcode_section=_BITCODE_SECTION_NAME.value,
            command_section=_CMD_SECTION_NAME.value,
            thinlto_base=(_base() or Path.cwd()) if _THINLTO_BUILD.value else None,
            overwrite=_OVERWRITE.value,
            progress=bar.update,
        )
    _report(extraction, f"{len(objects)} objects")
    return 0


def _extract_local() -> int:
    if _CMD_FILTER.value is not None:
        raise ConfigError(
            "--cmd_filter: the modules of --thinlto_build=local have no options of their own; leave it out"
        )
    if _INPUT_TYPE.value == "params" and _INPUT.value:
        link = local_thinlto.link_of_params(Path(_INPUT.value), _base())
    elif _INPUT_TYPE.value == "directory" or not _INPUT.value:
        link = local_thinlto.link_of_directory(Path(_INPUT.value or _OBJ_BASE_DIR.value or "."))
    else:
        raise ConfigError(
            f"--input_type={_INPUT_TYPE.value}: says nothing about a link; give params or directory with "
            "--thinlto_build=local"
        )
    if link.skipped:
        _tell(f"skipped: {len(link.skipped)} inputs of which the link left nothing ({listed(link.skipped)})")
    output_dir, total = Path(_OUTPUT_DIR.value), len(link.modules)
    with (
        exclusive_directory(output_dir, "--output_dir"),
        tqdm.tqdm(total=total, unit="module", dynamic_ncols=True) as bar,
    ):
        extraction = local_thinlto.extract(
            link,
            output_dir,
            num_workers=entry_point.num_workers(_NUM_WORKERS.value),
            overwrite=_OVERWRITE.value,
            progress=bar.update,
        )
    _report(extraction, f"{len(link.modules)} that were linked")
    return 0


def _base() -> Path | None:
    return Path(_OBJ_BASE_DIR.value) if _OBJ_BASE_DIR.value else None


def _build(path: Path) -> Build:
    """The objects that --input describes."""
    base = _base()
    if _INPUT_TYPE.value == "params":
        return params.objects_of_params(path, base)
    if _INPUT_TYPE.value == "directory":
        return directory.objects_of_directory(path, base)
    if _INPUT_TYPE.value == "bazel_aquery":
        return bazel_aquery.objects_of_aquery(path, base)
    return Build(tuple(database.objects_of_database(path, base)))


def _report(extraction: MadeCorpus, of_what: str) -> None:
    for line in printing.first_of("left out", [reason for _, reason in extraction.failures]):
        _tell(line)
    printing.echo(
        f"{_OUTPUT_DIR.value}: {len(extraction.modules)} modules of {of_what} "
        f"({extraction.filtered} left out by --cmd_filter, {len(extraction.failures)} without a usable module)"
    )


def _tell(line: str) -> None:
    if logging.get_verbosity() >= logging.WARNING:
        printing.echo(line)


if __name__ == "__main__":
    entry()
