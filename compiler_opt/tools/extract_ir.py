"""Makes a corpus of a build that was compiled with `-Xclang -fembed-bitcode=all`.

    python -m compiler_opt.tools.extract_ir --input=$BUILD/compile_commands.json --input_type=json --output_dir=$CORPUS

Options, names and layout are those of LLVM's mlgo-utils.
"""

import os
from pathlib import Path

import tqdm
from absl import flags

from compiler_opt.corpus import extract
from compiler_opt.tools import entry_point

_INPUT = flags.DEFINE_string("input", None, "What describes the build: its compile_commands.json.", required=True)
_INPUT_TYPE = flags.DEFINE_enum("input_type", "json", ["json"], "What --input is: json, a compilation database.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "The corpus folder to make.", required=True)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Objects read at a time; by default one per CPU.")
_LLVM_OBJCOPY_PATH = flags.DEFINE_string(
    "llvm_objcopy_path", None, "Read objects with this llvm-objcopy, as is needed for Mach-O and COFF; ELF needs none."
)
_OBJ_BASE_DIR = flags.DEFINE_string(
    "obj_base_dir",
    None,
    "The folder that holds all objects; module names are relative to it. By default, to the 'directory' of each entry.",
)
_CMD_FILTER = flags.DEFINE_string(
    "cmd_filter", None, "Only take modules with an option in which this regular expression is found, e.g. ^-Oz$."
)
_CMD_SECTION_NAME = flags.DEFINE_string("cmd_section_name", extract.COMMAND_SECTION, "Section with the options.")
_BITCODE_SECTION_NAME = flags.DEFINE_string(
    "bitcode_section_name", extract.BITCODE_SECTION, "Section with the bitcode."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Write into a folder that is not empty.")

_SHOWN_FAILURES = 10


def main(argv: list[str]) -> int:
    del argv
    base = Path(_OBJ_BASE_DIR.value) if _OBJ_BASE_DIR.value else None
    objects = extract.objects_of_database(Path(_INPUT.value), base)
    with tqdm.tqdm(total=len(objects), unit="object", dynamic_ncols=True) as bar:
        extraction = extract.extract(
            objects,
            Path(_OUTPUT_DIR.value),
            num_workers=_NUM_WORKERS.value or len(os.sched_getaffinity(0)),
            cmd_filter=_CMD_FILTER.value,
            llvm_objcopy=Path(_LLVM_OBJCOPY_PATH.value) if _LLVM_OBJCOPY_PATH.value else None,
            bitcode_section=_BITCODE_SECTION_NAME.value,
            command_section=_CMD_SECTION_NAME.value,
            overwrite=_OVERWRITE.value,
            progress=bar.update,
        )
    failures = extraction.failures
    for _, reason in failures[:_SHOWN_FAILURES]:
        # A path may hold bytes that cannot be printed.
        print(entry_point.one_line(f"left out: {reason}").encode("utf-8", "backslashreplace").decode())
    if len(failures) > _SHOWN_FAILURES:
        print(f"left out: {len(failures) - _SHOWN_FAILURES} more")
    print(
        f"{_OUTPUT_DIR.value}: {len(extraction.modules)} modules of {len(objects)} objects "
        f"({extraction.filtered} left out by --cmd_filter, {len(failures)} without a usable module)"
    )
    return 0


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
