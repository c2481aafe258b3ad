"""Confirms what a search has found by linking, and drops what does not make every target smaller.

Where even the base policy makes a target larger than LLVM's default does, the default's decisions take its place. What
remains makes no target larger than the default does and, unless targets share modules, none larger than the base does.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.llvm.object_file import linked_parts
from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Caller, Compiled
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.program import Program
from compiler_opt.search.search_outcome import SearchOutcome

_DROPS = 6
"""Attempts at dropping the decisions of some modules, before those of all modules of a target are dropped."""


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """The result after linking.

    Attributes:
      decisions: those that are kept.
      plain_linked_bytes: linked text by target, by plain clang: by default, and without options of LLVM's passes.
      base_linked_bytes: under the base policy, with such options.
      linked_bytes: by target; nowhere larger than the default's.
      base_object_bytes: text of each module's object under the base policy.
      object_bytes: and with the decisions.
      dropped: modules whose decisions were dropped.
      compiles: of modules.
      cpu_s: CPU seconds of the compiler.
    """

    decisions: Mapping[Site, int]
    plain_linked_bytes: Mapping[str, int]
    base_linked_bytes: Mapping[str, int]
    linked_bytes: Mapping[str, int]
    base_object_bytes: Mapping[int, int]
    object_bytes: Mapping[int, int]
    dropped: frozenset[int]
    compiles: int
    cpu_s: float


def needed_decisions(found: SearchOutcome, *, base_is_default: bool) -> dict[Site, int]:
    """The decisions of the best state that a file must have.

    If the base policy is the default, those that it would take in the same place are left out: then all that precedes
    each decision is the same, so it is taken.
    """
    decisions: dict[Site, int] = {}
    for build in found.best.builds.values():
        for (name, body), calls in build.calls.items():
            for call in calls:
                if not base_is_default or call.default is None or call.advice != call.default:
                    decisions[Site(name, body, call.callee, call.ordinal)] = call.advice
    return decisions


def confirm(
    compiler: PoolCompiler,
    found: SearchOutcome,
    decisions: Mapping[Site, int],
    targets: Mapping[str, Sequence[int]],
    lld: Path,
    scratch: Path,
    plain: PoolCompiler | None = None,
) -> Confirmed:
    """Compiles a program with and without decisions, and links its targets.

    Args:
      compiler: with the base policy.
      found: what the search has found; `found.others` begins with the default, if the base policy is another one.
      decisions: of the program.
      targets: numbers of the modules that are linked together, in link order, by name.
      lld: the linker.
      scratch: folder for objects.
      plain: plain clang, for comparison; None if `compiler` is that.

    Raises:
      CompileError: linking fails.
    """
    links = _Links(compiler, targets, sorted(found.base.builds), lld, scratch)
    base_linked, base_objects = links.link({}, "base")
    plain_linked = base_linked if plain is None else links.link({}, "plain", plain)[0]
    limits, default_decisions, fallback = base_linked, dict[Site, int](), dict[Site, int]()
    if found.others:
        default_decisions = found.others[0].all_decisions()
        default_linked, _ = links.link(default_decisions, "default")
        limits = {name: min(num_bytes, default_linked[name]) for name, num_bytes in base_linked.items()}
        # Modules of the targets that the base policy makes larger than the default does.
        grown = {m for name in targets if limits[name] < base_linked[name] for m in targets[name]}
        fallback = _of_modules(default_decisions, found.others[0], grown)
    active, attempts = set(found.base.builds), 0
    while True:
        kept = {**fallback, **_of_modules(decisions, found.best, active)}
        linked, objects = links.link(kept, "decided")
        not_smaller = [name for name in targets if linked[name] >= limits[name] and active & set(targets[name])]
        if not not_smaller or not kept:
            break
        attempts += 1
        for name in not_smaller:
            members = sorted(active & set(targets[name]), key=lambda m: (base_objects[m] - objects[m], m))
            active -= set(members if attempts > _DROPS else members[: (len(members) + 1) // 2])
    if found.others and any(linked[name] > default_linked[name] for name in targets):
        # Targets share modules that make one of them smaller and another one larger.
        kept, active = dict(default_decisions), set()
        linked, objects = links.link(kept, "decided")
    return Confirmed(
        decisions=kept,
        plain_linked_bytes=plain_linked,
        base_linked_bytes=base_linked,
        linked_bytes=linked,
        base_object_bytes=base_objects,
        object_bytes=objects,
        dropped=frozenset(found.base.builds.keys() - active) if decisions else frozenset(),
        compiles=links.compiles,
        cpu_s=links.cpu_s,
    )


def _of_modules(decisions: Mapping[Site, int], program: Program, modules: set[int]) -> dict[Site, int]:
    """The decisions of callers that are in these modules only."""
    dropped: set[Caller] = {caller for caller, places in program.modules_of.items() if not places <= modules}
    return {site: advice for site, advice in decisions.items() if (site.caller, site.body) not in dropped}


class _Links:
    """Compiles all modules, and links the targets.

    Attributes:
      compiles: so far.
      cpu_s: of them.
    """

    def __init__(
        self,
        compiler: PoolCompiler,
        targets: Mapping[str, Sequence[int]],
        modules: Sequence[int],
        lld: Path,
        scratch: Path,
    ):
        self._compiler, self._targets, self._modules = compiler, targets, modules
        self._lld, self._scratch = lld, scratch
        self._relocation_bytes: dict[int, int] = {}
        """Of the base."""
        self.compiles, self.cpu_s = 0, 0.0

    def link(
        self, decisions: Mapping[Site, int], name: str, compiler: PoolCompiler | None = None
    ) -> tuple[dict[str, int], dict[int, int]]:
        """Linked text by target, and objects' text by module. A module that fails counts as under the base policy.

        `compiler` is by default the one with the base policy.

        As the targets may be shared libraries, the dynamic relocations count that constants need there.
        """
        results = (compiler or self._compiler).compile(
            dict.fromkeys(self._modules, decisions), lambda module: self._scratch / name / f"{module}.o"
        )
        self.compiles += len(results)
        paths, object_bytes, relocation_bytes = {}, {}, dict(self._relocation_bytes)
        for module, compiled in results.items():
            if isinstance(compiled, Compiled):
                self.cpu_s += compiled.cpu_s
                paths[module] = self._scratch / name / f"{module}.o"
                object_bytes[module] = compiled.sizes.text_bytes
                relocation_bytes[module] = compiled.sizes.relocation_bytes
            else:
                paths[module] = self._scratch / "base" / f"{module}.o"
                object_bytes[module] = 0
        self._relocation_bytes = self._relocation_bytes or relocation_bytes
        linked = {
            target: linked_parts(
                self._lld, [paths[m] for m in members if m in paths and paths[m].exists()], scratch=self._scratch
            ).total
            + sum(relocation_bytes.get(m, 0) for m in members)
            for target, members in self._targets.items()
        }
        return linked, object_bytes
