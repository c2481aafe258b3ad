"""Makes one corpus of the corpora that are the sub-folders of a folder.

    python -m compiler_opt.tools.combine_training_corpus --root_dir=$CORPORA

writes $CORPORA/corpus_description.json, which lists the modules of $CORPORA/a, $CORPORA/b, ... Files stay where they
are. Corpora that differ in a property (ThinLTO, the linker's options...) are refused. A second run, after a sub-folder
was added or made anew, brings the description up to date.
"""

from pathlib import Path

from absl import flags

from compiler_opt.corpus.making import combine
from compiler_opt.tools import entry_point, printing

_ROOT_DIR = flags.DEFINE_string("root_dir", None, "The folder whose sub-folders are corpora.", required=True)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace a description that lists other modules.")


@entry_point.command
def entry() -> int:
    combined = combine.combine(Path(_ROOT_DIR.value), overwrite=_OVERWRITE.value)
    lines = [f"  {name}: {count} modules" for name, count in combined.modules.items()]
    if combined.others:
        lines.append(f"  no corpora: {', '.join(combined.others)}")
    total = sum(combined.modules.values())
    lines.append(f"{_ROOT_DIR.value}: {total} modules of {len(combined.modules)} corpora")
    printing.echo("\n".join(lines))
    return 0


if __name__ == "__main__":
    entry()
