"""The results of `studies.credit` on disk: compressed JSON lines, one file per project, read by `credit_report`.

    PROJECT.jsonl.gz    the first line describes the project (`Project`); then one line per compilation (`Compiled`)

A file appears when its project is done, so an interrupted run continues with the next project.
"""

import dataclasses
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites

DEFAULT, NEVER, NOISE, FLIP, EVERYWHERE, DEEP = "default", "never", "noise", "flip", "everywhere", "deep"
"""Kinds of compilations: all modules under three policies; one flipped decision; the same one in all modules that have
it; and several rollouts of a module with decisions flipped at random."""


@dataclasses.dataclass(frozen=True)
class Project:
    """A project whose modules are linked together.

    Attributes:
      name: of the project.
      language: `c` or `c++`.
      compiler: version of the compiler.
      modules: names, in the order of the link.
      linked: text bytes of the linked program by kind of compilation: `default`, `never`, `noise`.
      everywhere: for each flip in several modules, its number and the text bytes of the linked program.
    """

    name: str
    language: str
    compiler: str
    modules: tuple[str, ...]
    linked: Mapping[str, int]
    everywhere: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One compilation.

    Attributes:
      kind: see the constants.
      module: its name.
      sizes: of the object.
      sites: where the decisions were made; None if not recorded.
      advice: `[T]` the decisions; None if not recorded.
      flipped: the position of the flipped decision; None if there is not exactly one.
      number: tells apart compilations of a kind; for `EVERYWHERE`, the flip's number.
      linked: text bytes of the linked program with this object in place of the default's; None if not linked.
      local: local functions of the object; recorded for `never`, under which no function is inlined.
    """

    kind: str
    module: str
    sizes: ObjectSizes
    sites: CallSites | None = None
    advice: np.ndarray | None = None
    flipped: int | None = None
    number: int = 0
    linked: int | None = None
    local: tuple[str, ...] = ()


def write(path: Path, project: Project, compiled: Iterable[Compiled]) -> None:
    """Writes a project's file, which appears when it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with gzip.open(partial, "wt", compresslevel=3, errors="surrogateescape") as file:
        file.write(json.dumps(dataclasses.asdict(project)) + "\n")
        for record in compiled:
            file.write(json.dumps(dataclasses.asdict(record), default=_plain) + "\n")
    partial.replace(path)


def read(path: Path) -> tuple[Project, list[Compiled]]:
    """Reads a project's file."""
    with gzip.open(path, "rt", errors="surrogateescape") as file:
        lines: Iterator[dict[str, Any]] = map(json.loads, file)
        project = Project(**next(lines))
        return project, [_compiled(line) for line in lines]


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(int).tolist()
    raise TypeError(type(value).__name__)


def _compiled(line: dict[str, Any]) -> Compiled:
    sizes, sites, advice = ObjectSizes(**line["sizes"]), line["sites"], line["advice"]
    if sites is not None:
        columns = {name: np.array(sites[name], np.int32) for name in ("callers", "callees")}
        sites = CallSites(tuple(sites["functions"]), **columns, inlined=np.array(sites["inlined"], bool))
    advice = None if advice is None else np.array(advice, np.int64)
    return Compiled(**{**line, "sizes": sizes, "sites": sites, "advice": advice, "local": tuple(line["local"])})
