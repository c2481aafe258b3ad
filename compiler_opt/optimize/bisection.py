"""Builds in which plain clang compiles some of the modules, to find those in which the policy breaks tests.

A third build of the program has a compiler of its own: a script that compiles the objects on a list with plain clang
and all others with the policy. To change the list, the objects in question are removed and the program is built again,
by its own build tool, which compiles these and links what they go into. So nothing has to be known about linking, and
no object is ever of another folder or older than its sources.
"""

import filecmp
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from compiler_opt.files import write_atomically
from compiler_opt.optimize.program import Compilers, Program, Variant

MAX_MODULES = 8
"""How many modules are named; more mean that the policy and the program do not go together at all."""

_SCRIPT = """#!/bin/sh
# Compiles the objects that are listed in a file with plain clang, and all others with the policy.
folder={folder} real={real} output= previous=
for word do
  if [ "$previous" = -o ]; then output=$word; fi
  previous=$word
done
case $output in
  /*) ;;
  *) output=$(pwd -P)/$output ;;
esac
output=${{output%.partial}}
output=${{output#"$folder"/}}
output=${{output#"$real"/}}
if grep -qxF -e "$output" {list}; then
  exec {plain} "$@"
fi
exec {policy} "$@" {added}
"""


class MixedBuild:
    """A build of a program in which each object is compiled either by plain clang or with the policy."""

    def __init__(
        self,
        program: Program,
        folder: Path,
        options: Iterable[str],
        plain: Compilers,
        policy: Compilers,
        added: Sequence[str] = (),
    ):
        """The build will be in `folder`, its compilers and their list beside it; the policy has `added` options."""
        self._added = tuple(added)
        self._program = program
        self._plain, self._policy = plain, policy
        scripts = folder.with_name(f"{folder.name}-compilers")
        self._list = scripts / "plain-objects.txt"
        self.variant = Variant(folder, Compilers(scripts / "clang", scripts / "clang++", plain.ar), tuple(options))
        self._prepared = False

    def build(self, plain: Collection[str], on_progress: Callable[[int, int], object]) -> int:
        """Builds with these objects, paths relative to the build folder, compiled plainly, and all others not.

        May be interrupted and called again, also by another process. Returns how many objects it has to compile.

        Raises:
          ConfigError: the build fails.
        """
        folder = self.variant.folder
        changed = self._listed() ^ set(plain)
        for path in changed:
            (folder / path).unlink(missing_ok=True)
        write_atomically(self._list, "".join(f"{path}\n" for path in sorted(plain)).encode("utf-8", "surrogateescape"))
        self._write_scripts()
        if not self._prepared:
            self._program.prepare(self.variant)
            self._prepared = True
        self._program.build(self.variant, on_progress)
        return len(changed)

    def remove(self) -> None:
        """Removes the build and its compilers; the logs stay."""
        for folder in (self.variant.folder, self._list.parent):
            shutil.rmtree(folder, ignore_errors=True)

    def _listed(self) -> set[str]:
        try:
            return set(self._list.read_text("utf-8", "surrogateescape").splitlines())
        except FileNotFoundError:
            return set()

    def _write_scripts(self) -> None:
        """Writes the compilers, again for each build: compiler caches know a compiler by its time."""
        for script, plain, policy in (
            (self.variant.compilers.c, self._plain.c, self._policy.c),
            (self.variant.compilers.cxx, self._plain.cxx, self._policy.cxx),
        ):
            folder = self.variant.folder
            words = {"folder": folder, "real": folder.resolve(), "list": self._list, "plain": plain, "policy": policy}
            quoted = {name: shlex.quote(str(path)) for name, path in words.items()}
            text = _SCRIPT.format_map(quoted | {"added": shlex.join(self._added)})
            write_atomically(script, text.encode("utf-8", "surrogateescape"), executable=True)


def differing_objects(program: Program, default: Variant, optimized: Variant) -> list[str]:
    """The objects that differ between two builds, as paths relative to the build folder."""
    found = []
    for source in program.sources(default):
        path = source.object.path.relative_to(default.folder)
        other = optimized.folder / path
        if other.is_file() and not filecmp.cmp(source.object.path, other, shallow=False):
            found.append(path.as_posix())
    return found
