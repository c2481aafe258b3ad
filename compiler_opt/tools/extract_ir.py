"""Extracts a corpus from a build that was compiled with `-Xclang -fembed-bitcode=all`.

    compiler_opt extract_ir --input=$BUILD/compile_commands.json --input_type=json --output_dir=$CORPUS

The objects come from a compilation database (json), the arguments of a link (params: the contents of the linker's
`@file`), a folder and its subfolders (directory), or all links of a Bazel build (bazel_aquery: the output of `bazel
aquery --output=jsonproto`, with --obj_base_dir=$(bazel info execution_root)). The members of an archive become modules
`libx.a/member.o`; an object that was linked from several becomes `x.o.0`, `x.o.1`, ... Inputs without a module are left
out and listed with the reason.

Flags, names and layout are those of LLVM's mlgo-utils.
"""

import functools
from collections.abc import Callable
from pathlib import Path

from absl import flags, logging

from compiler_opt.corpus.builds import bazel_aquery, database, params
from compiler_opt.corpus.builds.objects import listed, objects_of_directory
from compiler_opt.corpus.making import extract, thinlto
from compiler_opt.corpus.making.writing import MadeCorpus
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import exclusive_directory
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_INPUT = shared_flags.path(
    "input",
    "The description of the build: a file, or a folder for the type directory. With --thinlto_build=local it defaults "
    "to --obj_base_dir.",
)
_INPUT_TYPE = flags.DEFINE_enum(
    "input_type",
    "json",
    ["json", "params", "directory", "bazel_aquery"],
    "The type of --input: json, a compilation database; params, the parameter file of a link; directory, a folder with "
    "objects; bazel_aquery, the actions of a Bazel build as JSON.",
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "The corpus folder to write.")
_NUM_WORKERS = shared_flags.num_workers("Threads")
_LLVM_OBJCOPY_PATH = shared_flags.path(
    "llvm_objcopy_path", "The llvm-objcopy to read objects with; for Mach-O and COFF only."
)
_OBJ_BASE_DIR = shared_flags.path(
    "obj_base_dir",
    "The folder of all objects, to which module names and the paths in params and bazel_aquery are relative. By "
    "default the 'directory' of each entry of a database, --input itself if it is a folder, and otherwise the working "
    "directory.",
)
_CMD_FILTER = flags.DEFINE_string(
    "cmd_filter", None, "Only modules with an option that matches this regular expression anywhere, e.g. ^-Oz$."
)
_CMD_SECTION_NAME = flags.DEFINE_string("cmd_section_name", extract.COMMAND_SECTION, "The section of the options.")
_BITCODE_SECTION_NAME = flags.DEFINE_string(
    "bitcode_section_name", extract.BITCODE_SECTION, "The section of the bitcode."
)
_THINLTO_BUILD = flags.DEFINE_enum(
    "thinlto_build",
    None,
    ["distributed", "local"],
    "Extract modules of a ThinLTO build, with their indices. distributed: from the objects of backends that ran in "
    "--obj_base_dir with -mllvm -lto-embed-bitcode=post-merge-pre-opt (without -fembed-bitcode). local: from a link by "
    "lld with -Wl,--save-temps=import -Wl,--thinlto-emit-index-files; --input is the link's parameter file (params), "
    "whose options apply to all modules, or a folder (directory), with -O2 and position-independent code.",
)
_CHECK = shared_flags.CheckFlag("any contents of the sections as one module for each object")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Write into a folder that is not empty.")

_LEVELS = {"debug": 1, "info": 0, "warning": -1, "error": -2, "critical": -3}


class _Verbosity(flags.ArgumentParser):
    """Parses --verbosity as absl's number or LLVM's name; below `warning`, skipped inputs are not listed."""

    def parse(self, argument: str | int) -> int:
        text = str(argument).lower()
        return _LEVELS[text] if text in _LEVELS else int(text)


flags.FLAGS["verbosity"].parser = _Verbosity()


@entry_point.command
def entry() -> None:
    check = _CHECK.read()
    is_local = _THINLTO_BUILD.value == "local"
    extract_to, total = _link() if is_local else _objects()
    output_dir = _OUTPUT_DIR.value
    with (
        exclusive_directory(output_dir, "--output_dir"),
        progress_bar(total=total, unit="module" if is_local else "object") as bar,
    ):
        made = extract_to(
            output_dir,
            num_workers=entry_point.num_workers(_NUM_WORKERS.value),
            check=check,
            overwrite=_OVERWRITE.value,
            progress=bar.update,
        )
    for line in entry_point.first_of("left out", [reason for _, reason in made.failures]):
        _warn(line)
    entry_point.echo(
        f"{output_dir}: {len(made.modules)} modules of {total} {'that were linked' if is_local else 'objects'} "
        f"({made.filtered} left out by --cmd_filter, {len(made.failures)} without a usable module)"
    )


def _objects() -> tuple[Callable[..., MadeCorpus], int]:
    """Extracts the objects of a build, and counts them."""
    path, base = _INPUT.value, _OBJ_BASE_DIR.value
    if not path:
        raise ConfigError("--input: expected the description of a build, found nothing; see --help")
    read = {
        "json": database.objects_of_database,
        "params": params.objects_of_params,
        "directory": objects_of_directory,
        "bazel_aquery": bazel_aquery.objects_of_aquery,
    }
    build = read[_INPUT_TYPE.value](path, base)
    skipped = [f"{len(paths)} {what} ({listed(paths)})" for what, paths in build.skipped.items()]
    if skipped and not build.objects:
        raise CorpusError(f"{path}: has no object to extract, only {'; '.join(skipped)}; give a build that has objects")
    for line in skipped:
        _warn(f"skipped: {line}")
    extract_to = functools.partial(
        extract.extract,
        build.objects,
        cmd_filter=_CMD_FILTER.value,
        llvm_objcopy=_LLVM_OBJCOPY_PATH.value,
        bitcode_section=_BITCODE_SECTION_NAME.value,
        command_section=_CMD_SECTION_NAME.value,
        thinlto_base=(base or Path.cwd()) if _THINLTO_BUILD.value else None,
    )
    return extract_to, len(build.objects)


def _link() -> tuple[Callable[..., MadeCorpus], int]:
    """Extracts the modules of a local ThinLTO link, and counts them."""
    path, base = _INPUT.value, _OBJ_BASE_DIR.value
    if _CMD_FILTER.value is not None:
        entry_point.note(
            "--cmd_filter keeps all modules: those of --thinlto_build=local have no options of their own to filter by"
        )
    if _INPUT_TYPE.value == "params" and path:
        link = thinlto.link_of_params(path, base)
    elif _INPUT_TYPE.value == "directory" or not path:
        link = thinlto.link_of_directory(path or base or Path())
    else:
        raise ConfigError(
            f"--input_type={_INPUT_TYPE.value}: does not describe a link; give params or directory with "
            "--thinlto_build=local"
        )
    if link.skipped:
        _warn(f"skipped: {len(link.skipped)} inputs that the link did not use ({listed(link.skipped)})")
    return functools.partial(thinlto.extract, link), len(link.modules)


def _warn(line: str) -> None:
    if logging.get_verbosity() >= logging.WARNING:
        entry_point.echo(line)


if __name__ == "__main__":
    entry()
