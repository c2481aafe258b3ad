"""Collects what single inlining decisions do to the linked program, for `studies.credit_report`.

For each project, every module is compiled by the default, without inlining, and by the default with decisions flipped
at random. Then single decisions of the default are flipped, one per compilation, and the program is linked with that
one object exchanged. Where a flipped decision belongs to a COMDAT function that a few other modules have too, it is
also flipped in all of them at once, as a policy would, which decides alike in equal situations. Some modules are also
compiled several times with random flips, as in training.

    python -m studies.credit --data_path=$CORPUS/train --output_dir=$RESULTS
    python -m studies.credit_report --results=$RESULTS

After an interruption, the same command continues with the next project.
"""

import dataclasses
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt import problem as problems
from compiler_opt.collect.flip_store import Flips, FlipStore
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import elf
from compiler_opt.llvm.object_file import ObjectSizes, linked_parts
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import ConstantPolicy, FlippingPolicy, Policy
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from studies import credit_records as records
from studies.credit_records import Compiled
from studies.credit_variants import keys

_DATA_PATH = flags.DEFINE_string("data_path", None, "Corpus, such as fetch_corpus makes.", required=True)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the results, one file per project.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the sample of modules and decisions", 1)
_STORE = shared_flags.path(
    "store", "Store of flips to add the flips to, with their features; see collect/flip_store.py."
)
_PROJECT = flags.DEFINE_multi_string("project", [], "A project of the corpus; may be repeated; by default all.")
_FLIPS = flags.DEFINE_integer("flips", 64, "Decisions to flip, per project.", 1)
_MODULES = flags.DEFINE_integer("modules", 6, "Modules to flip decisions in, per project.", 1)
_MAX_MODULES = flags.DEFINE_integer("max_modules", 80, "Modules per project; more are sampled.", 1)
_EVERYWHERE = flags.DEFINE_integer("everywhere", 6, "Flips to repeat in all modules, per project.", 0)
_DEEP_MODULES = flags.DEFINE_integer("deep_modules", 2, "Modules with several random rollouts, per project.", 0)
_ROLLOUTS = flags.DEFINE_integer("rollouts", 16, "Random rollouts of each of these.", 1)
_NOISE = flags.DEFINE_float("noise", 0.07, "Probability that a random rollout flips a decision.", 0.0, 1.0)

_PROBLEM = "inlining"
_SETTINGS = RolloutSettings(timeout_s=60.0, record_call_sites=True, backend="channel")
_MIN_DECISIONS, _MAX_DECISIONS = 4, 3000
_MAX_COPIES = 6
"""A decision is flipped everywhere if it occurs in at most so many modules."""


@entry_point.command
def entry() -> None:
    corpus, toolchain = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value)
    if _PROJECT.value:
        corpus = corpus.select(_PROJECT.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    if toolchain.require(_PROBLEM).default_in_callee_slot:
        raise ConfigError(f"{toolchain.clang}: sends the default decision in a feature's place; use a clang >= 20")
    _OUTPUT_DIR.value.mkdir(parents=True, exist_ok=True)
    problem = problems.load(_PROBLEM)
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    with WorkerPool(toolchain, problem, num_workers) as pool, scratch_directory() as scratch:
        for name, modules in progress_bar(corpus.projects().items(), unit="project"):
            path = _OUTPUT_DIR.value / f"{name.replace('/', '_')}.jsonl.gz"
            if not path.exists():
                study = _Study(name, modules, pool, toolchain, scratch / "objects")
                compiled = list(study.compilations())
                if _STORE.value is not None:
                    FlipStore(_STORE.value).add(study.flips(compiled))
                records.write(path, study.described(), compiled)
                shutil.rmtree(study.folder)
                print(f"{name}: {dict(Counter(each.kind for each in compiled))}", flush=True)


class _Study:
    """The compilations and links of one project."""

    def __init__(
        self, name: str, modules: Sequence[Module], pool: WorkerPool[ObjectSizes], toolchain: Toolchain, folder: Path
    ):
        self.folder = folder
        self._name, self._pool, self._toolchain = name, pool, toolchain
        self._rng = np.random.default_rng((_SEED.value, zlib.crc32(name.encode())))
        kept = self._rng.permutation(len(modules))[: _MAX_MODULES.value]
        self._modules = [modules[index] for index in sorted(kept)]
        self._default = DefaultPolicy(problems.load(_PROBLEM))
        self._linked: dict[str, int] = {}
        self._everywhere: dict[str, int] = {}
        self._features: dict[str, dict[str, np.ndarray]] = {}  # of the default's decisions, by module

    def described(self) -> records.Project:
        language = Counter(module.language() for module in self._modules).most_common(1)[0][0]
        names = tuple(module.name for module in self._modules)
        compiler = self._toolchain.version_text
        return records.Project(self._name, language, compiler, names, self._linked, self._everywhere)

    def flips(self, compiled: Sequence[Compiled]) -> Flips:
        """The single flips, for a store."""
        problem = problems.load(_PROBLEM)
        by_kind: dict[str, dict[str, Compiled]] = {records.DEFAULT: {}, records.NEVER: {}}
        for each in compiled:
            by_kind.get(each.kind, {})[each.module] = each
        default, never = (by_kind[kind] for kind in (records.DEFAULT, records.NEVER))
        context = problem.objective.project_context(
            [d.sizes for d in default.values()], [n.sizes for n in never.values()]
        )
        scores = {name: problem.score(each.sizes, context) for name, each in default.items()}
        found = [each for each in compiled if each.kind == records.FLIP and each.flipped is not None]
        modules = sorted({each.module for each in found})
        names = problem.decision.feature_names
        places = [(each.module, each.flipped) for each in found]
        observed = [[int(self._features[module][name].reshape(-1)[k]) for name in names] for module, k in places]
        advice = {name: each.advice for name, each in default.items() if each.advice is not None}
        base = np.array([advice[module][k] for module, k in places], np.int64)
        base_linked, linked = self._linked[records.DEFAULT], [each.linked for each in found]
        return Flips(
            problem=problem.name,
            compiler=self._toolchain.version_text,
            base=records.DEFAULT,
            features=tuple(names),
            modules=tuple(modules),
            projects=(self._name,) * len(modules),
            observations=np.array(observed, np.int64).reshape(-1, len(names)),
            actions=1 - base,
            base_actions=base,
            gains=np.array([scores[each.module] - problem.score(each.sizes, context) for each in found]),
            linked_gains=np.array([np.nan if after is None else base_linked - after for after in linked], float),
            owners=np.array([modules.index(each.module) for each in found], np.int32),
        )

    def compilations(self) -> Iterator[Compiled]:
        """All compilations of the study; links programs on the way."""
        whole: dict[str, dict[str, Compiled]] = {}
        for kind, policy in (
            (records.DEFAULT, self._default),
            (records.NEVER, ConstantPolicy(0, records.NEVER)),
            (records.NOISE, FlippingPolicy(self._default, probability=_NOISE.value)),
        ):
            # Modules that fail once are left out altogether.
            whole[kind] = {each.module: each for each in self._roll_out(kind, [(m, policy) for m in self._modules])}
            self._modules = [module for module in self._modules if module.name in whole[kind]]
        for kind, compiled in whole.items():
            self._linked[kind] = self._link({module.name: self._object(kind, module) for module in self._modules})
            yield from (compiled[module.name] for module in self._modules)
        defaults = whole[records.DEFAULT]
        chosen = self._chosen(defaults)
        flips = [(module, FlippingPolicy(self._default, [k])) for module, k in self._decisions(chosen, defaults)]
        repeated = 0
        for flip in self._roll_out(records.FLIP, flips):
            copies = self._copies(flip, defaults)
            if repeated < _EVERYWHERE.value and 1 < len(copies) <= _MAX_COPIES:
                yield from self._flip_everywhere(repeated, copies)
                repeated += 1
            yield flip
        deep = chosen[: _DEEP_MODULES.value]
        noisy = FlippingPolicy(self._default, probability=_NOISE.value)
        yield from self._roll_out(records.DEEP, [(module, noisy) for module in deep for _ in range(_ROLLOUTS.value)])

    def _chosen(self, defaults: dict[str, Compiled]) -> list[Module]:
        """The modules to flip decisions in."""
        many = [m for m in self._modules if _MIN_DECISIONS <= _num_decisions(defaults[m.name]) <= _MAX_DECISIONS]
        return [many[index] for index in self._rng.permutation(len(many))[: _MODULES.value]]

    def _decisions(self, chosen: Sequence[Module], defaults: dict[str, Compiled]) -> Iterator[tuple[Module, int]]:
        """The decisions to flip, spread evenly over the modules."""
        orders = [(module, self._rng.permutation(_num_decisions(defaults[module.name]))) for module in chosen]
        rounds = max((len(order) for _, order in orders), default=0)
        turns = ((module, int(order[turn])) for turn in range(rounds) for module, order in orders if turn < len(order))
        return (pair for pair, _ in zip(turns, range(_FLIPS.value), strict=False))

    def _copies(self, flip: Compiled, defaults: dict[str, Compiled]) -> list[tuple[Module, int]]:
        """The modules that have the flipped decision of a COMDAT function, and its position in each."""
        default = defaults[flip.module]
        assert flip.flipped is not None and default.sites is not None
        site = keys(default.sites)[flip.flipped]
        if site[0] not in default.sizes.function_comdats:
            return []
        found = []
        for module in self._modules:
            sites = defaults[module.name].sites
            positions = {} if sites is None else {key: position for position, key in enumerate(keys(sites))}
            if site in positions:
                found.append((module, positions[site]))
        return found

    def _flip_everywhere(self, number: int, copies: Sequence[tuple[Module, int]]) -> list[Compiled]:
        pairs = [(module, FlippingPolicy(self._default, [position])) for module, position in copies]
        compiled = [
            dataclasses.replace(each, number=number, linked=None)
            for each in self._roll_out(records.EVERYWHERE, pairs, keep=True)
        ]
        if len(compiled) < len(copies):
            return []
        objects = {module.name: self._object(records.DEFAULT, module) for module in self._modules}
        objects |= {module.name: self._object(records.EVERYWHERE, module) for module, _ in copies}
        self._everywhere[str(number)] = self._link(objects)
        return compiled

    def _roll_out(
        self, kind: str, pairs: Sequence[tuple[Module, Policy]], *, keep: bool | None = None
    ) -> Iterator[Compiled]:
        """Compiles; links the program if `kind` is a flip. A failure yields nothing."""
        is_whole = kind in (records.DEFAULT, records.NEVER, records.NOISE)
        is_kept = is_whole or kind in (records.FLIP, records.EVERYWHERE) if keep is None else keep
        jobs = [
            Job(module, policy, seed, _SETTINGS, self._object(kind, module) if is_kept else None)
            for seed, (module, policy) in enumerate(pairs)
        ]
        # One after the other, so that the next flip of a module does not overwrite an object before it is linked.
        for job in jobs:
            for _, rollout in list(self._pool.rollouts([job])):
                if rollout.measurement is not None:
                    yield self._compiled(kind, job, rollout)

    def _compiled(self, kind: str, job: Job, rollout: Rollout[ObjectSizes]) -> Compiled:
        assert rollout.measurement is not None
        trajectory, flipped, linked = rollout.trajectory, None, None
        local: tuple[str, ...] = ()
        if kind == records.DEFAULT and trajectory is not None:
            self._features[job.module.name] = trajectory.features()
        if isinstance(job.policy, FlippingPolicy) and len(job.policy.positions) == 1:
            (flipped,) = job.policy.positions
        if kind == records.FLIP:
            objects = {module.name: self._object(records.DEFAULT, module) for module in self._modules}
            linked = self._link({**objects, job.module.name: self._object(kind, job.module)})
        if kind == records.NEVER:
            local = local_functions(self._object(kind, job.module))
        sites, advice = (None, None) if trajectory is None else (trajectory.sites, trajectory.advice)
        assert sites is None or isinstance(sites, CallSites)
        return Compiled(kind, rollout.module, rollout.measurement, sites, advice, flipped, job.seed, linked, local)

    def _object(self, kind: str, module: Module) -> Path:
        return self.folder / kind / f"{module.name}.o"

    def _link(self, objects: dict[str, Path]) -> int:
        return linked_parts(self._toolchain.tool("ld.lld"), list(objects.values())).total


def _num_decisions(compiled: Compiled) -> int:
    return 0 if compiled.advice is None else len(compiled.advice)


def local_functions(path: Path) -> tuple[str, ...]:
    """The names of the local functions of an object."""
    file = elf.ElfFile.read(path)
    tables = np.flatnonzero(file.sections["type"] == elf.SHT_SYMTAB)
    if not len(tables):
        return ()
    table = int(tables[0])
    symbols, sections = file.symbols(table)
    is_local = (symbols["info"] == elf.STT_FUNC) & (sections >= 0)  # The upper half is the binding: 0 is local.
    return tuple(file.strings(int(file.sections["link"][table]), symbols["name"][is_local]))


if __name__ == "__main__":
    entry()
