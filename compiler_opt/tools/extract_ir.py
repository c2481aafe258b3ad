"""Makes a corpus of a build that was compiled with `-Xclang -fembed-bitcode=all`.

    python -m compiler_opt.tools.extract_ir --input=$BUILD/compile_commands.json --input_type=json --output_dir=$CORPUS

The objects are those of a compilation database (json), of a link (params: what its driver or linker was given, as in
the `@file` of a link), of a tree of folders (directory), or of all links of a Bazel build (bazel_aquery: what `bazel
aquery --output=jsonproto` printed, with --obj_base_dir=$(bazel info execution_root)). Archives give their members, as
modules `libx.a/member.o`; an object that was linked of several gives `x.o.0`, `x.o.1`, ... What holds no module is
named with the reason, and left out.

Options, names and layout are those of LLVM's mlgo-utils.
"""

import os
from pathlib import Path

import tqdm
from absl import flags

from compiler_opt.corpus import extract, sections
from compiler_opt.corpus.builds import bazel_aquery, database, directory, params
from compiler_opt.corpus.builds.objects import Build, listed
from compiler_opt.tools import entry_point

_INPUT_TYPES = ("json", "params", "directory", "bazel_aquery")

_INPUT = flags.DEFINE_string(
    "input", None, "What describes the build: a file, or a folder for the type directory.", required=True
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
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Write into a folder that is not empty.")

_SHOWN_FAILURES = 10


def main(argv: list[str]) -> int:
    del argv
    build = _build()
    for what, paths in build.skipped.items():
        _say(f"skipped: {len(paths)} {what} ({listed(paths)})")
    objects = build.objects
    with tqdm.tqdm(total=len(objects), unit="object", dynamic_ncols=True) as bar:
        extraction = extract.extract(
            objects,
            Path(_OUTPUT_DIR.value),
            num_workers=_num_workers(),
            cmd_filter=_CMD_FILTER.value,
            llvm_objcopy=Path(_LLVM_OBJCOPY_PATH.value) if _LLVM_OBJCOPY_PATH.value else None,
            bitcode_section=_BITCODE_SECTION_NAME.value,
            command_section=_CMD_SECTION_NAME.value,
            overwrite=_OVERWRITE.value,
            progress=bar.update,
        )
    _report(extraction, f"{len(objects)} objects")
    return 0


def _build() -> Build:
    """The objects that --input describes."""
    path = Path(_INPUT.value)
    base = Path(_OBJ_BASE_DIR.value) if _OBJ_BASE_DIR.value else None
    if _INPUT_TYPE.value == "params":
        return params.objects_of_params(path, base)
    if _INPUT_TYPE.value == "directory":
        return directory.objects_of_directory(path, base)
    if _INPUT_TYPE.value == "bazel_aquery":
        return bazel_aquery.objects_of_aquery(path, base)
    return Build(tuple(database.objects_of_database(path, base)))


def _num_workers() -> int:
    return _NUM_WORKERS.value or len(os.sched_getaffinity(0))


def _report(extraction: extract.Extraction, of_what: str) -> None:
    failures = extraction.failures
    for _, reason in failures[:_SHOWN_FAILURES]:
        _say(f"left out: {reason}")
    if len(failures) > _SHOWN_FAILURES:
        _say(f"left out: {len(failures) - _SHOWN_FAILURES} more")
    _say(
        f"{_OUTPUT_DIR.value}: {len(extraction.modules)} modules of {of_what} "
        f"({extraction.filtered} left out by --cmd_filter, {len(failures)} without a usable module)"
    )


def _say(text: str) -> None:
    # A path may hold bytes that cannot be printed.
    print(entry_point.one_line(text).encode("utf-8", "backslashreplace").decode())


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
