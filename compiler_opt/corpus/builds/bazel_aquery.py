"""Lists the objects that a Bazel build links, from `bazel aquery --output=jsonproto`.

The graph has `actions` (`mnemonic`, `arguments`, `paramFiles`, `inputDepSetIds`, `outputIds`), nested sets of files
(`depSetOfFiles`: `directArtifactIds`, `transitiveDepSetIds`), `artifacts` with a `pathFragmentId`, and `pathFragments`,
each a `label` below a `parentId`. Old versions of Bazel write ids as strings, and whole paths (`execPath`).
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.corpus.builds import params, response_files
from compiler_opt.corpus.builds.objects import OBJECT_SUFFIXES, Build, listed
from compiler_opt.corpus.builds.reading import read_json
from compiler_opt.errors import CorpusError

MAX_BYTES = 1 << 30
MAX_DEPTH = 1 << 10

WANTED = "what `bazel aquery --output=jsonproto 'mnemonic(\"CppLink\", deps(//...))'` printed"

_LINKS = ("CppLink", "ObjcLink")
_ARCHIVES = ("CppArchive", "ObjcArchive")
_LIBRARY_SUFFIXES = (".a", ".lo")


def objects_of_aquery(path: Path, base: Path | None = None) -> Build:
    """Lists the objects that the link actions of a query result take as inputs, directly or in archives.

    Args:
      path: the query result.
      base: the folder that Bazel runs its actions in (`bazel info execution_root`); by default the working directory.

    Raises:
      CorpusError: it is not a query result, or has no link action; see also `params.objects_of_params`.
    """
    graph, base = _Graph(path), base or Path.cwd()
    links = [action for action in graph.actions if action.get("mnemonic") in (*_LINKS, *_ARCHIVES)]
    if not links:
        mnemonics = sorted({str(action.get("mnemonic")) for action in graph.actions})
        raise CorpusError(f"{path}: expected an action CppLink, found {listed(mnemonics) or 'none'}; give {WANTED}")
    inputs: dict[str, None] = {}
    options: list[str] = []
    made_here: set[str] = set()
    for action in links:
        made = list(graph.paths_of(_ids(action, "outputIds", graph.where)))
        # In Bazel 4, actions that make static libraries are CppLink, too.
        if action["mnemonic"] in _ARCHIVES or any(file.endswith(_LIBRARY_SUFFIXES) for file in made):
            made_here.update(made)
        else:
            linked, link_options = params.parse(response_files.expand(graph.command_of(action), base, graph.where))
            options += link_options
            inputs.update(dict.fromkeys(linked))
        files = graph.paths_of(graph.artifacts_of(_ids(action, "inputDepSetIds", graph.where)))
        inputs.update(dict.fromkeys(file for file in files if file.endswith((*OBJECT_SUFFIXES, *_LIBRARY_SUFFIXES))))
    # The objects in an archive of this build are inputs of its archive action.
    found = params.objects_of_inputs([file for file in inputs if file not in made_here], base, graph.where)
    return Build(found.objects, found.skipped, tuple(options))


class _Graph:
    """A query result, its tables by id."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        graph = read_json(path, MAX_BYTES, WANTED)
        if not isinstance(graph, dict):
            raise CorpusError(f"{path}: expected a JSON object, found {type(graph).__name__}; give {WANTED}")
        self.actions = _objects(graph, "actions", self.where)
        self._sets = _by_id(graph, "depSetOfFiles", self.where)
        self._artifacts = _by_id(graph, "artifacts", self.where)
        self._fragments = _by_id(graph, "pathFragments", self.where)

    def artifacts_of(self, set_ids: Iterable[str]) -> Iterator[str]:
        """Ids of the artifacts in nested sets of files; visits each set once."""
        waiting = list(set_ids)
        seen = set(waiting)
        while waiting:
            entry = _entry(self._sets, waiting.pop(), "depSetOfFiles", self.where)
            yield from _ids(entry, "directArtifactIds", self.where)
            further = [item for item in _ids(entry, "transitiveDepSetIds", self.where) if item not in seen]
            seen.update(further)
            waiting += further

    def paths_of(self, artifact_ids: Iterable[str]) -> Iterator[str]:
        for artifact_id in artifact_ids:
            artifact = _entry(self._artifacts, artifact_id, "artifacts", self.where)
            whole = artifact.get("execPath")
            yield whole if isinstance(whole, str) else self._path(_id(artifact, "pathFragmentId", self.where))

    def command_of(self, action: Mapping[str, Any]) -> list[str]:
        """The arguments of an action, with its parameter files expanded."""
        files = {
            file.get("execPath"): _texts(file, "arguments", self.where)
            for file in _objects(action, "paramFiles", self.where)
        }
        command: list[str] = []
        for word in _texts(action, "arguments", self.where):
            name = word.removeprefix("-Wl,").removeprefix("@")
            command += files.pop(name) if name in files else [word]
        for rest in files.values():
            command += rest
        return command[1:]  # Without the program.

    def _path(self, fragment_id: str) -> str:
        labels: list[str] = []
        while fragment_id:
            if len(labels) > MAX_DEPTH:
                raise CorpusError(f"{self.where}: pathFragments: expected at most {MAX_DEPTH} levels, found more")
            fragment = _entry(self._fragments, fragment_id, "pathFragments", self.where)
            labels.append(str(fragment.get("label")))
            fragment_id = _id(fragment, "parentId", self.where) if "parentId" in fragment else ""
        return "/".join(reversed(labels))


def _objects(entry: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise CorpusError(f"{where}: '{key}': expected a list of objects, found something else; give {WANTED}")
    return values


def _texts(entry: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise CorpusError(f"{where}: '{key}': expected a list of strings, found something else; give {WANTED}")
    return values


def _ids(entry: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(_is_id(value) for value in values):
        raise CorpusError(f"{where}: '{key}': expected a list of ids, found something else; give {WANTED}")
    return [str(value) for value in values]


def _id(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not _is_id(value):
        raise CorpusError(f"{where}: '{key}': expected an id, found {str(value)[:80]!r}; give {WANTED}")
    return str(value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _by_id(graph: Mapping[str, Any], key: str, where: str) -> dict[str, dict[str, Any]]:
    return {_id(entry, "id", where): entry for entry in _objects(graph, key, where)}


def _entry(table: Mapping[str, dict[str, Any]], key: str, name: str, where: str) -> dict[str, Any]:
    try:
        return table[key]
    except KeyError:
        raise CorpusError(f"{where}: there is no entry {key[:80]!r} in '{name}'; give {WANTED}") from None
