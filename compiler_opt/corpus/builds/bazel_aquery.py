"""Lists the objects that a Bazel build links, from `bazel aquery --output=jsonproto`.

The graph has `actions` (`mnemonic`, `arguments`, `paramFiles`, `inputDepSetIds`, `outputIds`), nested sets of files
(`depSetOfFiles`: `directArtifactIds`, `transitiveDepSetIds`), `artifacts` with a `pathFragmentId`, and `pathFragments`,
each a `label` below a `parentId`. Old versions of Bazel write ids as strings, and whole paths (`execPath`).
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from compiler_opt.corpus.builds import params, response_files
from compiler_opt.corpus.builds.objects import OBJECT_SUFFIXES, Build, listed
from compiler_opt.corpus.validation import read_json
from compiler_opt.errors import CorpusError

MAX_BYTES = 1 << 30
MAX_DEPTH = 1 << 10

WANTED = "what `bazel aquery --output=jsonproto 'mnemonic(\"CppLink\", deps(//...))'` printed"

_LINKS = ("CppLink", "ObjcLink")
_ARCHIVES = ("CppArchive", "ObjcArchive")
_LIBRARY_SUFFIXES = (".a", ".lo")


_Id = int | str
_Value = TypeVar("_Value")


class _ParamFile(msgspec.Struct, rename="camel"):
    exec_path: str | None = None
    arguments: list[str] = []


class _Action(msgspec.Struct, rename="camel"):
    mnemonic: str = ""
    arguments: list[str] = []
    param_files: list[_ParamFile] = []
    input_dep_set_ids: list[_Id] = []
    output_ids: list[_Id] = []


class _FileSet(msgspec.Struct, rename="camel"):
    id: _Id
    direct_artifact_ids: list[_Id] = []
    transitive_dep_set_ids: list[_Id] = []


class _Artifact(msgspec.Struct, rename="camel"):
    id: _Id
    path_fragment_id: _Id | None = None
    exec_path: str | None = None


class _PathFragment(msgspec.Struct, rename="camel"):
    id: _Id
    label: str
    parent_id: _Id | None = None


class _Query(msgspec.Struct, rename="camel"):
    """The keys that we read; others are ignored."""

    actions: list[_Action] = []
    dep_set_of_files: list[_FileSet] = []
    artifacts: list[_Artifact] = []
    path_fragments: list[_PathFragment] = []


def objects_of_aquery(path: Path, base: Path | None = None) -> Build:
    """Lists the objects that the link actions of a query result take as inputs, directly or in archives.

    `base` is the folder that Bazel runs its actions in (`bazel info execution_root`); by default the working directory.

    Raises:
      CorpusError: it is not a query result, or has no link action; see also `params.objects_of_params`.
    """
    graph, base = _Graph(path), base or Path.cwd()
    links = [action for action in graph.actions if action.mnemonic in (*_LINKS, *_ARCHIVES)]
    if not links:
        mnemonics = sorted({action.mnemonic for action in graph.actions})
        raise CorpusError(f"{path}: expected an action CppLink, found {listed(mnemonics) or 'none'}; give {WANTED}")
    inputs: dict[str, None] = {}
    options: list[str] = []
    made_here: set[str] = set()
    for action in links:
        made = list(graph.paths_of(action.output_ids))
        # In Bazel 4, actions that make static libraries are CppLink, too.
        if action.mnemonic in _ARCHIVES or any(file.endswith(_LIBRARY_SUFFIXES) for file in made):
            made_here.update(made)
        else:
            linked, link_options = params.parse(response_files.expand(_command_of(action), base, str(path)))
            options += link_options
            inputs.update(dict.fromkeys(linked))
        files = graph.paths_of(graph.artifacts_of(action.input_dep_set_ids))
        inputs.update(dict.fromkeys(file for file in files if file.endswith((*OBJECT_SUFFIXES, *_LIBRARY_SUFFIXES))))
    # The objects in an archive of this build are inputs of its archive action.
    found = params.objects_of_inputs([file for file in inputs if file not in made_here], base, str(path))
    return Build(found.objects, found.skipped, tuple(options))


def _command_of(action: _Action) -> list[str]:
    """The arguments of an action, with its parameter files expanded, without the program."""
    files = {file.exec_path: file.arguments for file in action.param_files}
    command: list[str] = []
    for word in action.arguments:
        command += files.pop(word.removeprefix("-Wl,").removeprefix("@"), [word])
    for rest in files.values():
        command += rest
    return command[1:]


class _Graph:
    """A query result, its tables by id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        query = read_json(path, _Query, MAX_BYTES, WANTED)
        self.actions = query.actions
        # Ids are numbers or, of old versions, strings.
        self._sets = {str(entry.id): entry for entry in query.dep_set_of_files}
        self._artifacts = {str(entry.id): entry for entry in query.artifacts}
        self._fragments = {str(entry.id): entry for entry in query.path_fragments}

    def artifacts_of(self, set_ids: Iterable[_Id]) -> Iterator[_Id]:
        """Ids of the artifacts in nested sets of files; visits each set once."""
        waiting = [str(item) for item in set_ids]
        visited = set(waiting)
        while waiting:
            entry = self._entry(self._sets, waiting.pop(), "depSetOfFiles")
            yield from entry.direct_artifact_ids
            further = [item for item in map(str, entry.transitive_dep_set_ids) if item not in visited]
            visited.update(further)
            waiting += further

    def paths_of(self, artifact_ids: Iterable[_Id]) -> Iterator[str]:
        for artifact_id in artifact_ids:
            artifact = self._entry(self._artifacts, artifact_id, "artifacts")
            yield artifact.exec_path if artifact.exec_path is not None else self._path_of(artifact.path_fragment_id)

    def _path_of(self, fragment_id: _Id | None) -> str:
        labels: list[str] = []
        while fragment_id is not None:
            if len(labels) > MAX_DEPTH:
                raise CorpusError(f"{self._path}: pathFragments: expected at most {MAX_DEPTH} levels, found more")
            fragment = self._entry(self._fragments, fragment_id, "pathFragments")
            labels.append(fragment.label)
            fragment_id = fragment.parent_id
        return "/".join(reversed(labels))

    def _entry(self, table: Mapping[str, _Value], key: _Id, name: str) -> _Value:
        try:
            return table[str(key)]
        except KeyError:
            raise CorpusError(f"{self._path}: there is no entry {str(key)[:80]!r} in '{name}'; give {WANTED}") from None
