"""Single decisions that differ from a policy's: by site, as a file, and the policy that takes them.

    sites = sites_of(rollout.trajectory.sites)                          # of a rollout whose call sites have bodies
    decisions = Decisions({sites[3]: 1, sites[8]: 0}, about)
    rollout(module, OverridingPolicy(base, decisions), ...)             # as `base`, but for these two decisions
    decisions.save(path); Decisions.load(path)

A call's `Site` names a decision independently of its position and of the rest of the module, so one file serves a whole
program: all modules that emit a COMDAT function replay the same decisions in it, a function that has changed is left to
the policy, and an unchanged function in a changed file keeps its decisions. What the register allocator decides in one
function changes no other, so there a site is a place among the function's decisions.

The native form of decisions on calls, which `native/decision_file.h` reads; little-endian, every section starts at a
multiple of 8 bytes, and so does the end of the file:

    "mlgo-dec", u32 version, u32 CRC-32 of all that follows, u64 size of the file,
    u32 major version of LLVM, u32 callers C, u32 decisions D, u32 bytes of `about`,
    u32 CRC-32 of the base policy's native form (as in its header), u32 its size in bytes; both 0 for the default
    C x {u64 name, u64 body, u32 first, u32 count}       ascending by (name, body); `first` is the sum of earlier counts
    D x {u64 callee, u32 ordinal, u32 advice}            each caller's ascending by (callee, ordinal)
    about       JSON, with a NUL

`name` and `callee` are LLVM's GUIDs of the symbol names: the first 8 bytes of their MD5.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from compiler_opt.checked_values import Json, convert
from compiler_opt.errors import PolicyError
from compiler_opt.files import one_line, read_checked_json, shown, write_checked_json
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, DeciderByFunction, Policy
from compiler_opt.policies.weights import NetworkWeights

FORMAT = 1
MAX_FILE_BYTES = 1 << 26
MAX_DECISIONS = 1_000_000
DEFAULT_BASE = "default"
"""What `about` has for the policy if the base is the compiler's own heuristic."""

_LARGEST = 2.0**53
_NATIVE_MAGIC, _NATIVE_VERSION = b"mlgo-dec", 1
_POLICY_MAGIC = b"mlgo-net"
_POLICY = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9]{1,9}")
_VERSION = re.compile(r"([0-9]{1,4})(\.[0-9]+)*")


Advice: TypeAlias = int | float
A = TypeVar("A", bound=Advice)
_Body: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
_Calls: TypeAlias = Sequence[tuple[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)], A]]
Caller: TypeAlias = tuple[str, _Body, _Calls[A]]
"""Name, body in hexadecimal, and the callee, ordinal and advice of each decision."""


@dataclasses.dataclass
class _Function:
    """The decisions in one caller, in a decision file."""

    name: str
    body: _Body
    calls: _Calls[Advice]


@dataclasses.dataclass
class _File:
    format: int
    about: dict[str, Json]
    functions: list[_Function]


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Site:
    """Where one decision is made.

    Attributes:
      caller: symbol name.
      body: fingerprint, in 64 bits, of the caller's IR before any inlining.
      callee: symbol name.
      ordinal: number of earlier decisions on calls of the callee in the caller, in the same compilation.
    """

    caller: str
    body: int
    callee: str
    ordinal: int

    @classmethod
    def in_function(cls, function: str, ordinal: int) -> "Site":
        """The site of a decision that is not about a call; `ordinal` counts all decisions in the function, from 0."""
        return cls(function, 0, "", ordinal)

    @property
    def is_call(self) -> bool:
        return bool(self.body or self.callee)


@dataclasses.dataclass(frozen=True)
class Base:
    """Who decides where nothing is replayed: a network, or the compiler's own heuristic if there is none.

    Attributes:
      weights: of the network.
      native: its native form, see `spaces/native.py`, by which the plugin identifies it.
    """

    weights: NetworkWeights | None = None
    native: bytes = b""

    @property
    def name(self) -> str:
        """What `about` has for the policy: `NetworkWeights.checksum`, or `DEFAULT_BASE`."""
        return DEFAULT_BASE if self.weights is None else self.weights.checksum()

    @property
    def native_key(self) -> tuple[int, int]:
        """CRC-32, from its header, and size of the native form; both 0 for the default.

        Raises:
          PolicyError: it has no native form.
        """
        if self.weights is None:
            return 0, 0
        if not self.native.startswith(_POLICY_MAGIC):
            raise PolicyError("decisions: the base policy has no native form that the plugin can identify")
        return struct.unpack_from("<I", self.native, 12)[0], len(self.native)

    def is_named(self, name: str) -> bool:
        """Also by CRC-32 and size of the native form, as decision files named it before."""
        return name == self.name or name == "{:08x}-{}".format(*self.native_key)


def sites_of(call_sites: CallSites) -> list[Site]:
    """The sites of the T decisions of one compilation of one module, in order.

    Raises:
      PolicyError: the callers' bodies are not known; they are only if the plugin decides.
    """
    if call_sites.bodies is None:
        raise PolicyError("decisions: the call sites have no fingerprints of their callers; use the backend plugin")
    names = call_sites.functions
    seen: collections.Counter[tuple[int, int]] = collections.Counter()
    found = []
    columns = (call_sites.callers, call_sites.callees, call_sites.bodies)
    for caller, callee, body in zip(*(column.tolist() for column in columns), strict=True):
        found.append(Site(names[caller], body, names[callee], seen[caller, callee]))
        seen[caller, callee] += 1
    return found


class Decisions(Mapping[Site, Advice]):
    """Advice by site, in the order of the sites; immutable. Equal if the advice is, whatever `about` says.

    Attributes:
      on_calls: whether they are on calls, with advice 0 or 1, or there are none.
      about: what the decisions are for and where they come from. `problem`; `llvm`, the compiler's version; `policy`,
        `Base.name`; and whatever else is worth keeping. All of it is optional.
    """

    def __init__(
        self, advice: Mapping[Site, Advice] | Iterable[tuple[Site, Advice]] = (), about: Mapping[str, Json] = {}
    ):
        """Raises PolicyError if advice or a site has an unexpected value, only some are calls, or `about` is wrong."""
        self._advice = dict(sorted(dict(advice).items()))
        self.about: Mapping[str, Json] = dict(about)
        self.on_calls = not self._advice or next(iter(self._advice)).is_call
        if len(self._advice) > MAX_DECISIONS:
            raise PolicyError(f"decisions: expected at most {MAX_DECISIONS}, found {len(self._advice)}")
        for site, value in self._advice.items():
            if site.is_call != self.on_calls:
                raise PolicyError("decisions: expected all on calls, or none, found some")
            if value not in (0, 1) if self.on_calls else not abs(value) <= _LARGEST:
                expected = "0 or 1" if self.on_calls else "at most 2^53"
                raise PolicyError(f"decisions: expected advice of {expected}, found {shown(value)}")
            if not (0 <= site.body < 1 << 64 and 0 <= site.ordinal < 1 << 32):
                raise PolicyError(f"decisions: expected a body of 64 bits and an ordinal of 32, found {shown(site)}")
        _check_about(self.about)

    def __getitem__(self, site: Site) -> Advice:
        return self._advice[site]

    def __iter__(self) -> Iterator[Site]:
        return iter(self._advice)

    def __len__(self) -> int:
        return len(self._advice)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} decisions, {self.about})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Rollouts send them to workers; names are repeated, so this takes a tenth of the bytes of pickled sites.
        return _unpickled, (zlib.compress(json.dumps(by_caller(self)).encode(), 1), self.about)

    @property
    def major(self) -> int | None:
        """The major version of LLVM that the decisions are for; None if `about` does not say."""
        version = self.about.get("llvm")
        return None if version is None else int(version.split(".")[0])

    def merged(self, other: "Decisions") -> "Decisions":
        """Both; where they differ, the other's.

        Raises:
          PolicyError: they are for different problems, versions of LLVM or base policies.
        """
        for what, ours, theirs in (
            ("problems", self.about.get("problem"), other.about.get("problem")),
            ("versions of LLVM", self.major, other.major),
            ("base policies", self.about.get("policy"), other.about.get("policy")),
        ):
            if ours is not None and theirs is not None and ours != theirs:
                raise PolicyError(f"decisions: cannot merge those for the {what} {shown(ours)} and {shown(theirs)}")
        return Decisions({**self._advice, **other._advice}, {**other.about, **self.about})

    def check(self, *, major: int, base: Base, origin: str = "decisions") -> None:
        """Checks that the plugin can replay them with a compiler and a base policy, as far as `about` says.

        Args:
          major: version of LLVM.
          base: decides elsewhere.
          origin: the first words of the message.

        Raises:
          PolicyError: they are for another one.
        """
        if not self.on_calls:
            raise PolicyError(f"{origin}: expected inlining decisions, found those of register allocation")
        if self.major not in (None, major):
            raise PolicyError(f"{origin}: for LLVM {self.major}, but the compiler has LLVM {major}; search again")
        recorded = self.about.get("policy")
        if recorded is not None and not base.is_named(recorded):
            raise PolicyError(
                f"{origin}: made with {_described(recorded)}, but this is {_described(base.name)}; search again, or "
                "use what the decisions were made with"
            )

    def save(self, path: Path) -> None:
        """Writes the decision file, as JSON with a checksum; raises OutputError if it cannot."""
        functions = [{"name": name, "body": body, "calls": calls} for name, body, calls in by_caller(self)]
        write_checked_json(path, {"format": FORMAT, "about": self.about, "functions": functions})

    @classmethod
    def load(cls, path: Path) -> "Decisions":
        """Reads a decision file; raises PolicyError if it is missing, damaged or too large."""
        remedy = "make it again, or restore the file"
        try:
            content = convert(read_checked_json(path, MAX_FILE_BYTES), _File)
            if content.format != FORMAT:
                raise ValueError(f"expected format {FORMAT}, found {content.format}")
            return cls(from_callers((each.name, each.body, each.calls) for each in content.functions), content.about)
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
        except ValueError as error:
            raise PolicyError(f"{path}: not a decision file, or damaged ({one_line(str(error))}); {remedy}") from None
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}; {remedy}") from None

    def native_form(self, *, major: int, base: Base = Base(), origin: str = "decisions") -> bytes:
        """The form that the plugin replays, see above; arguments and errors as of `check`."""
        self.check(major=major, base=base, origin=origin)
        callers: dict[tuple[int, int], dict[tuple[int, int], Advice]] = {}
        for name, body, calls in by_caller(self):
            records = callers.setdefault((guid(name), int(body, 16)), {})
            records.update(((guid(callee), ordinal), advice) for callee, ordinal, advice in calls)
        caller_records: list[bytes] = []
        decision_records: list[bytes] = []
        for caller, advice in sorted(callers.items()):
            caller_records.append(struct.pack("<QQII", *caller, len(decision_records), len(advice)))
            decision_records += [struct.pack("<QII", *call, value) for call, value in sorted(advice.items())]
        about = json.dumps(self.about, sort_keys=True).encode() + b"\0"
        about += bytes(-len(about) % 8)
        counts = (len(caller_records), len(decision_records), len(about))
        header = struct.pack("<6I", major, *counts, *base.native_key)
        content = header + b"".join(caller_records) + b"".join(decision_records) + about
        checked = struct.pack("<Q", len(_NATIVE_MAGIC) + 16 + len(content)) + content
        return _NATIVE_MAGIC + struct.pack("<II", _NATIVE_VERSION, zlib.crc32(checked)) + checked


def by_caller(decisions: Mapping[Site, A]) -> list[Caller[A]]:
    """The decisions in each caller, for files."""
    callers: dict[tuple[str, int], list[tuple[str, int, A]]] = {}
    for site, advice in decisions.items():
        callers.setdefault((site.caller, site.body), []).append((site.callee, site.ordinal, advice))
    return [(name, f"{body:016x}", calls) for (name, body), calls in callers.items()]


def from_callers(callers: Iterable[Caller[A]]) -> dict[Site, A]:
    """The inverse of `by_caller`; raises PolicyError if a site is given twice."""
    found: dict[Site, A] = {}
    for name, body, calls in callers:
        for callee, ordinal, value in calls:
            site = Site(name, int(body, 16), callee, ordinal)
            if site in found:
                raise PolicyError(f"the site {shown(site)} is given twice")
            found[site] = value
    return found


def _unpickled(callers: bytes, about: Mapping[str, Json]) -> Decisions:
    return Decisions(from_callers(json.loads(zlib.decompress(callers))), about)


def _check_about(about: Mapping[str, Json]) -> None:
    version, policy = about.get("llvm", "0"), about.get("policy", DEFAULT_BASE)
    if not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise PolicyError(f"decisions: expected a version of LLVM such as '22.1.8', found {shown(version)}")
    if policy != DEFAULT_BASE and not (isinstance(policy, str) and _POLICY.fullmatch(policy)):
        raise PolicyError(f"decisions: expected the checksum of a policy, or {DEFAULT_BASE!r}, found {shown(policy)}")


def _described(policy: str) -> str:
    return "the default decisions" if policy == DEFAULT_BASE else f"the policy {policy}"


class OverridingPolicy(Policy):
    """Decides as another policy, but for the decisions that it is given.

    On calls, or without decisions, it decides within the compiler only, in the inliner's plugin, as the channel does
    not identify call sites. The other policy is a learned one, greedy, or the default.

    Unless the other policy samples, a function is compiled alike up to its first such decision.

    Attributes:
      base: decides elsewhere.
      decisions: by site.
    """

    def __init__(self, base: Policy, decisions: Decisions, name: str = "", *, mask: str | None = None):
        """`mask`: the feature that says which advice is legal; decisions that are not legal are left to the base."""
        self.name = name or f"{base.name} with decisions"
        self.base = base
        self.decisions = decisions
        self.needs_default = base.needs_default and not decisions.on_calls
        self._mask = mask

    def start(self, header: Header, seed: int) -> Decider:
        if self.decisions.on_calls:
            raise PolicyError(
                f"policy {self.name!r}: only the inliner's plugin replays decisions; use the backend auto or plugin, "
                "and a compiler that the plugin can be built for (llvm-NN-dev)"
            )
        decider = self.base.start(header, seed)

        def decide(function: str, ordinal: int, observation: bytes) -> Advice:
            advice = decider(observation)
            other = self.decisions.get(Site.in_function(function, ordinal))
            return advice if other is None or not self._is_legal(header, observation, other) else other

        return DeciderByFunction(decide, (decider,))

    def _is_legal(self, header: Header, observation: bytes, advice: Advice) -> bool:
        if self._mask is None:
            return True
        mask: np.ndarray = header.decode(observation)[self._mask].reshape(-1)
        return 0 <= advice < len(mask) and bool(mask[int(advice)])


def provenance(problem: str, llvm: Sequence[int], base: Base = Base()) -> dict[str, Json]:
    """What `Decisions.about` has of a search: the problem, the version of LLVM, and who decides elsewhere."""
    return {"problem": problem, "llvm": ".".join(map(str, llvm)), "policy": base.name}


@functools.lru_cache(1 << 16)
def guid(name: str) -> int:
    """LLVM's GUID of a symbol name: the first 8 bytes of its MD5, little-endian."""
    digest = hashlib.md5(name.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")
