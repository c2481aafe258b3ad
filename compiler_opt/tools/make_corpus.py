"""Makes a corpus of a folder of bitcode files that are all compiled with the same options.

    compiler_opt make_corpus --input_dir=$BITCODE --output_dir=$CORPUS --default_args='-cc1 -Oz'

reads every *.bc file in the folder and its subfolders. Flags and layout are those of LLVM's mlgo-utils; `--nocheck`
also takes what those would take.
"""

from absl import flags

from compiler_opt.corpus.making import make
from compiler_opt.files import exclusive_directory
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_INPUT_DIR = shared_flags.required_path("input_dir", "The folder of the bitcode files.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "The corpus folder to write.")
_DEFAULT_ARGS = flags.DEFINE_string(
    "default_args",
    None,
    "The cc1 options of every module, quoted as for a shell, e.g. '-cc1 -Oz'. For another target than the compiler's "
    "default they must name it: '-cc1 -triple aarch64-linux-gnu -Oz'. With --nocheck, any options, without quotes.",
)
_CHECK = shared_flags.CheckFlag("any *.bc files and any --default_args as they are")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Write into a folder that is not empty.")


@entry_point.command
def entry() -> None:
    input_dir, output_dir = _INPUT_DIR.value, _OUTPUT_DIR.value
    check, text = _CHECK.read(), _DEFAULT_ARGS.value or ""
    options = make.parse_args(text) if check else tuple(text.split())
    paths = make.find_bitcode(input_dir, output_dir)
    with exclusive_directory(output_dir, "--output_dir"), progress_bar(total=len(paths), unit="file") as bar:
        made = make.make(
            paths, input_dir, output_dir, options, check=check, overwrite=_OVERWRITE.value, progress=bar.update
        )
    for line in entry_point.first_of("left out", [reason for _, reason in made.failures]):
        entry_point.echo(line)
    entry_point.echo(f"{output_dir}: {len(made.modules)} modules of {len(paths)} files")


if __name__ == "__main__":
    entry()
