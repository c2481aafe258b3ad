"""Combines the corpora in the subfolders of a folder into one corpus.

    compiler_opt combine_training_corpus --root_dir=$CORPORA

writes $CORPORA/corpus_description.json, which lists the modules of $CORPORA/a, $CORPORA/b, ... No files are copied.
Corpora that differ in a property (ThinLTO, the linker's options, ...) cannot be combined. Run it again after adding or
replacing a subfolder.
"""

from absl import flags

from compiler_opt.corpus.making import combine
from compiler_opt.tools import entry_point, shared_flags

_ROOT_DIR = shared_flags.required_path("root_dir", "The folder whose subfolders are corpora.")
_CHECK = shared_flags.CheckFlag("descriptions as they are, without looking for the files of their modules")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace an existing description that lists other modules.")


@entry_point.command
def entry() -> None:
    combined = combine.combine(_ROOT_DIR.value, check=_CHECK.read(), overwrite=_OVERWRITE.value)
    lines = [f"  {name}: {count} modules" for name, count in combined.modules.items()]
    if combined.others:
        lines.append(f"  not corpora: {', '.join(combined.others)}")
    total = sum(combined.modules.values())
    lines.append(f"{_ROOT_DIR.value}: {total} modules of {len(combined.modules)} corpora")
    entry_point.echo("\n".join(lines))


if __name__ == "__main__":
    entry()
