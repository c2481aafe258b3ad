"""A folder of released policies with its index."""

import dataclasses
import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from compiler_opt.checked_values import NonNegativeInt, read_json
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.files import printable, read_regular, shown, write_json
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE, ModelCard
from compiler_opt.policies.weights import NETWORK_FILE, NetworkWeights

PREFIX = "pretrained:"
"""Begins the name of a policy where a path is expected, too."""

ENVIRONMENT = "COMPILER_OPT_PRETRAINED"
"""The environment variable that names another folder than this package's."""

FILES = (NETWORK_FILE, CARD_FILE, MARKDOWN_FILE)
"""What the folder of a policy has."""

INDEX_FILE = "index.json"
FORMAT = 1

_MAX_INDEX_BYTES = 1 << 20
_MAX_FILE_BYTES = 1 << 24
_NAME = re.compile(r"\w[\w.+-]{0,99}", re.ASCII)
_REMEDY = "install compiler_opt again"


def policy_folder(name: Path | str) -> Path:
    """The folder of a policy, given as a path, or in a string also as `pretrained:NAME`.

    A folder whose own name begins with `pretrained:` is `./pretrained:...`.

    Raises:
      PolicyError: there is no policy of that name, or it was changed.
    """
    if isinstance(name, str) and name.startswith(PREFIX):
        return PretrainedIndex.installed().path(name.removeprefix(PREFIX))
    return Path(name)


@dataclasses.dataclass(frozen=True)
class ReleasedFile:
    """A file of a policy: its size in bytes, and its SHA-256 in hexadecimal."""

    size: NonNegativeInt
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> "ReleasedFile":
        return cls(len(content), hashlib.sha256(content).hexdigest())


@dataclasses.dataclass(frozen=True)
class ReleasedPolicy:
    """A policy in the index: the name of its problem, and its files by name."""

    problem: str
    files: dict[str, ReleasedFile]


@dataclasses.dataclass(frozen=True)
class _Index:
    format: Literal[1]
    policies: dict[str, ReleasedPolicy]


class PretrainedIndex:
    """The released policies in a folder; none if the folder has no index."""

    def __init__(self, folder: Path):
        self._folder = folder

    @classmethod
    def installed(cls) -> "PretrainedIndex":
        """This package's, or that of the environment variable."""
        return cls(Path(os.environ.get(ENVIRONMENT) or Path(__file__).parents[1] / "pretrained"))

    def names(self, problem: str | None = None) -> tuple[str, ...]:
        """The sorted names of all policies, or of those for one problem. Raises PolicyError if the index is damaged."""
        return tuple(sorted(name for name, entry in self.index().items() if problem in (None, entry.problem)))

    def index(self) -> Mapping[str, ReleasedPolicy]:
        """The policies by name, without reading them. Raises PolicyError if the index is damaged."""
        path = self._folder / INDEX_FILE
        try:
            index = read_json(path, _Index, max_bytes=_MAX_INDEX_BYTES, error=PolicyError, remedy=_REMEDY)
        except FileNotFoundError:
            return {}
        for name, entry in index.policies.items():
            if odd := [part for part in (name, *entry.files) if not _NAME.fullmatch(part)]:
                raise PolicyError(f"{path}: expected the name of a policy or file, found {shown(odd[0])}; {_REMEDY}")
            if missing := [file for file in FILES if file not in entry.files]:
                raise PolicyError(f"{path}: {name}: expected a checksum of {missing[0]}, found none; {_REMEDY}")
        return index.policies

    def path(self, name: str) -> Path:
        """The folder of a policy, all of whose files are those of the index.

        Raises:
          PolicyError: there is no such policy; one of its files is missing or was changed; the index is damaged.
        """
        index = self.index()
        if name not in index:
            known = f"expected one of {', '.join(sorted(index))}" if index else "no policy ships with this version"
            raise PolicyError(f"{PREFIX}{printable(name[:100])}: no such policy; {known}")
        folder = self._folder / name
        for file, expected in index[name].files.items():
            try:
                content = read_regular(folder / file, _MAX_FILE_BYTES)
            except OSError as error:
                raise PolicyError(f"{folder / file}: cannot be read ({error.strerror}); {_REMEDY}") from error
            found = ReleasedFile.of(content)
            if found != expected:
                raise PolicyError(
                    f"{folder / file}: was damaged or edited after its release (SHA-256 {found.sha256[:12]}..., "
                    f"{INDEX_FILE} says {expected.sha256[:12]}...); {_REMEDY}, or copy {folder} and give the copy"
                )
        return folder

    def card(self, name: str) -> ModelCard:
        """The model card of a policy. Raises PolicyError as `path`."""
        folder = self.path(name)
        card = ModelCard.load(folder)
        if card is None:
            raise PolicyError(f"{folder / CARD_FILE}: was removed; {_REMEDY}")
        return card

    def best(self, problem: str, offered: Sequence[Collection[str]]) -> str | None:
        """The policy for a problem that observes most, of those that observe only features that all compilers offer.

        Args:
          problem: its name.
          offered: the names of each compiler's features.

        Raises:
          PolicyError: the index or a policy is damaged.
        """
        features = {name: NetworkWeights.load(self.path(name)).features for name in self.names(problem)}
        suitable = [name for name, needed in features.items() if all(set(needed) <= set(names) for names in offered)]
        return max(suitable, key=lambda name: len(features[name])) if suitable else None

    def add(self, name: str, weights: NetworkWeights, card: ModelCard) -> Path:
        """Writes a policy with its model card, in place of one of the same name; returns its folder.

        Raises:
          ConfigError: the name is not suitable for a folder.
          OutputError: something cannot be written.
          PolicyError: the index is damaged.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"expected a name of letters, digits and . + -, found {shown(name)}")
        policies = dict(self.index())
        folder = self._folder / name
        # Without its line in the index, a policy that is not written in full is none.
        if policies.pop(name, None) is not None:
            self._write_index(policies)
        weights.save(folder, compressed=True)
        card.save(folder)
        files = {file: ReleasedFile.of(read_regular(folder / file, _MAX_FILE_BYTES)) for file in FILES}
        self._write_index({**policies, name: ReleasedPolicy(card.problem, files)})
        return folder

    def _write_index(self, policies: Mapping[str, ReleasedPolicy]) -> None:
        entries = {name: dataclasses.asdict(policies[name]) for name in sorted(policies)}
        write_json(self._folder / INDEX_FILE, {"format": FORMAT, "policies": entries})
