"""Compares variants of credit with what flipped decisions did to the linked program, from `studies.credit`.

Legend: N flips.

`credit_variants` describes the variants. Intervals are of 95%, by a bootstrap over projects.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import flags

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.decisions.inlining.credit import function_credit
from compiler_opt.errors import ConfigError
from compiler_opt.objectives.linked_text import weighted_functions, weighted_text_bytes
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags
from studies import credit_records as records
from studies.credit_records import Compiled, Project
from studies.credit_variants import Copies, Estimate, by_kind, flips_of, keys

_RESULTS = shared_flags.required_path("results", "Folder of results of studies.credit.")
_SAMPLES = flags.DEFINE_integer("samples", 500, "Samples of the bootstrap.", 1)
_GROUPS = flags.DEFINE_list("groups", ["8", "16"], "Numbers of rollouts of a group.")
_MIN_FLIPS = 10
_BUCKET, _REPEATS = 5, 10


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's; NaN if either is constant."""
    if len(x) < 3 or not x.std() or not y.std():
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values, equal ones sharing theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return shared


STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "Pearson": correlation,
    "Spearman": lambda x, y: correlation(ranks(x), ranks(y)),
    "same sign": lambda x, y: float((np.sign(x) == np.sign(y))[y != 0].mean()) if (y != 0).any() else float("nan"),
    "unexplained": lambda x, y: float(np.abs(y - x).sum() / np.abs(y).sum()) if np.abs(y).sum() else float("nan"),
}
"""Of an estimate and the truth, `[N]` each."""


def with_interval(
    statistic: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, y: np.ndarray, projects: np.ndarray, num: int
) -> str:
    """The statistic and its 95% interval by a bootstrap over projects, as text."""
    members = [np.flatnonzero(projects == name) for name in np.unique(projects)]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(num):
        chosen = np.concatenate([members[index] for index in rng.integers(len(members), size=len(members))])
        drawn.append(statistic(x[chosen], y[chosen]))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return f"{statistic(x, y):.2f} ({low:.2f} to {high:.2f})"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], num_text_columns: int) -> None:
    print("\n".join(Table(head, rows, num_text_columns=num_text_columns).lines()), flush=True)


def print_variants(title: str, found: Sequence[Estimate], variants: Sequence[tuple[str, str]]) -> None:
    """Prints a table of all statistics for some variants."""
    if len(found) < _MIN_FLIPS:
        return
    truth = np.array([each.linked for each in found], float)
    projects = np.array([each.project for each in found])
    changed = np.mean(truth != 0)
    print(f"\n{title}: {len(found)} flips of {len(set(projects))} projects; {changed:.0%} change the linked program")
    rows = []
    for variant in variants:
        estimate = np.array([each.by_variant[variant] for each in found])
        cells = (with_interval(s, estimate, truth, projects, _SAMPLES.value) for s in STATISTICS.values())
        rows.append([*variant, *cells])
    print_table(["reach", "weights", *STATISTICS], rows, 2)


def print_squashes(found: Sequence[Estimate]) -> None:
    """Prints how squashed credit, which keeps its sign and rank, correlates with the truth."""
    truth = np.array([each.linked for each in found], float)
    projects = np.array([each.project for each in found])
    estimate = np.array([each.by_variant["all the way", "default"] for each in found])
    buckets = _buckets(found, _BUCKET)
    owners = projects[[bucket[0] for bucket in buckets]]
    means = np.array([truth[bucket].mean() for bucket in buckets])
    rows = []
    for name, squash in SQUASHES.items():
        squashed = squash(estimate)
        expected = np.array([squashed[bucket].mean() for bucket in buckets])
        same_sign = with_interval(STATISTICS["same sign"], expected, means, owners, _SAMPLES.value)
        rank = with_interval(STATISTICS["Spearman"], expected, means, owners, _SAMPLES.value)
        rows.append([name, with_interval(correlation, squashed, truth, projects, _SAMPLES.value), rank, same_sign])
    print(
        f"\nsquashed credit, all the way, as the default emits; means of {_BUCKET} flips of a project from one action"
    )
    print_table(["squash", "Pearson", "Spearman of means", "same sign of means"], rows, 1)


def _buckets(found: Sequence[Estimate], size: int) -> list[np.ndarray]:
    """Indices of random flips of the same project and the same action, for which a coarse policy has one preference."""
    members: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for index, each in enumerate(found):
        members[each.project, each.default].append(index)
    rng = np.random.default_rng(0)
    buckets = []
    for indices in members.values():
        for _ in range(_REPEATS):
            order = rng.permutation(indices)
            buckets += [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
    return buckets


def _clipped(quantile: float) -> Callable[[np.ndarray], np.ndarray]:
    return AdvantagesConfig(squash="clip", clip_quantile=quantile).squashed


SQUASHES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": AdvantagesConfig(squash="none").squashed,
    "clip at 0.99": _clipped(0.99),
    "clip at 0.95": _clipped(0.95),
    "clip at 0.9": _clipped(0.9),
    "clip at 0.8": _clipped(0.8),
    "clip at 0.6": _clipped(0.6),
    "clip at 0.4": _clipped(0.4),
    "log": AdvantagesConfig(squash="log").squashed,
    "sign": np.sign,
}


def print_programs(read: Sequence[tuple[Project, list[Compiled]]]) -> None:
    """Prints how much of a change of the sum of the scores is a change of the linked program."""
    rows = []
    for kind in (records.NEVER, records.NOISE):
        changes: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for project, compiled in read:
            modules = by_kind(compiled)
            copies = Copies(modules)
            base = project.linked[records.DEFAULT]
            linked = project.linked[kind] - base
            for name, counted in copies.programs(kind).items():
                # The default is weighed by its own copies where the policy is weighed by its own.
                first = copies.programs(records.DEFAULT)[name]
                before = sum(weighted_text_bytes(each.sizes, first) for each in modules[records.DEFAULT].values())
                after = sum(weighted_text_bytes(each.sizes, counted) for each in modules[kind].values())
                changes[name].append((after - before, linked, base))
        for name, values in changes.items():
            said, true, default_bytes = np.array(values).T
            errors = np.abs(said - true) / default_bytes
            rows.append([kind, name, f"{said.sum() / true.sum():.3f}", f"{errors.mean():.2%}", f"{errors.max():.2%}"])
    print("\nwhole programs: the change of the sum of all scores over that of the linked program, against the default")
    print_table(["policy", "weights", "said / linked", "mean error", "largest error"], rows, 2)


def group_credit(group: Sequence[Compiled], reach: str, copies: Mapping[str, float]) -> list[np.ndarray]:
    """Credit of the decisions of a group of rollouts, for each rollout `[T]`."""
    sites = [each.sites for each in group if each.sites is not None]
    costs = [weighted_functions(each.sizes, copies) for each in group]
    if reach == "all the way":
        return function_credit(costs, sites)
    if reach == "module":
        scores = np.array([weighted_text_bytes(each.sizes, copies) for each in group])
        return [np.full(len(site.callers), gain) for site, gain in zip(sites, scores.mean() - scores, strict=True)]
    names = {name for cost in costs for name in cost}
    mean = {name: sum(cost.get(name, 0.0) for cost in costs) / len(costs) for name in names}
    found = []
    for cost, site in zip(costs, sites, strict=True):
        saved = np.array([mean.get(name, 0.0) - cost.get(name, 0.0) for name in site.functions])
        passed_on = np.zeros(len(saved))
        if reach == "one hop":
            pairs = np.unique(np.stack([site.callees, site.callers], axis=1)[site.inlined], axis=0)
            np.add.at(passed_on, pairs[:, 0], saved[pairs[:, 1]])
        found.append(saved[site.callers] + passed_on[site.callers] + saved[site.callees])
    return found


def print_training(read: Sequence[tuple[Project, list[Compiled]]], group_size: int) -> None:
    """Prints how credit in groups of random rollouts, as in training, compares with what single flips do."""
    pairs: defaultdict[tuple[str, str, str], list[tuple[str, float, float]]] = defaultdict(list)
    num_modules = 0
    for project, compiled in read:
        modules = by_kind(compiled)
        weights = Copies(modules).programs(records.DEFAULT)
        deep: defaultdict[str, list[Compiled]] = defaultdict(list)
        flips: defaultdict[str, dict[tuple[str, str, int], tuple[int, float]]] = defaultdict(dict)
        for each in compiled:
            default = modules[records.DEFAULT].get(each.module)
            if each.kind == records.DEEP and each.sites is not None:
                deep[each.module].append(each)
            elif each.kind == records.FLIP and each.linked is not None and default is not None:
                assert default.sites is not None and default.advice is not None and each.flipped is not None
                key = keys(default.sites)[each.flipped]
                # The true effect on the score that training sees: linked bytes have a copy's whole size, or nothing.
                effect = weighted_text_bytes(each.sizes, weights["larger"])
                effect -= weighted_text_bytes(default.sizes, weights["larger"])
                flips[each.module][key] = (int(default.advice[each.flipped]), effect)
        num_modules += len(deep)
        for module, rollouts in deep.items():
            for start in range(0, len(rollouts) - group_size + 1, group_size):
                group = rollouts[start : start + group_size]
                for reach in ("module", "caller, callee", "one hop", "all the way"):
                    credit = group_credit(group, reach, weights["larger"])
                    for name, squash in SQUASHES.items():
                        squashed = np.split(squash(np.concatenate(credit)), np.cumsum([len(c) for c in credit])[:-1])
                        for truth, said in _differences(group, squashed, flips[module]):
                            pairs[reach, "larger", name].append((project.name, truth, said))
    print(f"\nin training: groups of {group_size} random rollouts of {num_modules} modules; flipped minus default")
    rows = []
    for (reach, _, squash_name), values in pairs.items():
        if squash_name not in ("none", "clip at 0.8", "log") and reach != "all the way":
            continue
        projects = np.array([name for name, _, _ in values])
        true, estimated = np.array([value[1:] for value in values]).T
        cells = [with_interval(STATISTICS[s], estimated, true, projects, _SAMPLES.value) for s in list(STATISTICS)[:3]]
        rows.append([reach, squash_name, str(len(values)), *cells])
    print_table(["reach", "squash", "decisions", *list(STATISTICS)[:3]], rows, 2)


def _differences(
    group: Sequence[Compiled],
    credit: Sequence[np.ndarray],
    flips: Mapping[tuple[str, str, int], tuple[int, float]],
) -> list[tuple[float, float]]:
    """True effects of flips that a group has tried, in bytes, and what its credit says of them."""
    by_action: defaultdict[tuple[str, str, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for each, values in zip(group, credit, strict=True):
        assert each.sites is not None and each.advice is not None
        for key, advice, value in zip(keys(each.sites), each.advice.tolist(), values.tolist(), strict=True):
            if key in flips:
                by_action[key][int(advice != flips[key][0])].append(value)
    return [
        (flips[key][1], float(np.mean(default) - np.mean(flipped)))
        for key, (default, flipped) in by_action.items()
        if default and flipped
    ]


@entry_point.command
def entry() -> None:
    paths = sorted(_RESULTS.value.glob("*.jsonl.gz"))
    if not paths:
        raise ConfigError(f"--results={_RESULTS.value}: has no results of studies.credit")
    read = [records.read(path) for path in paths]
    single, everywhere = [], []
    for project, compiled in read:
        one, many = flips_of(project, compiled)
        single += one
        everywhere += many
    weights = ("unweighted", "default", "default, else never", "larger", "marginal")
    by_reach = [
        (reach, "larger") for reach in ("caller, callee", "one hop", "all the way", "and what the callee calls")
    ]
    by_weight = [("all the way", weight) for weight in weights]
    by_module = [("module", weight) for weight in weights]
    print(f"{read[0][0].compiler}; projects: {', '.join(project.name for project, _ in read)}")
    print_variants("single flips", single, [*by_reach, *by_weight, *by_module])
    for language in sorted({each.language for each in single}):
        of_language = [each for each in single if each.language == language]
        print_variants(f"single flips, {language}", of_language, [*by_reach, *by_weight])
    for kind in ("local", "COMDAT", "external"):
        of_kind = [each for each in single if each.callee == kind]
        print_variants(f"single flips, callee {kind}", of_kind, [("one hop", "default, else never"), *by_weight])
    print_variants("the same decision in all modules that have it", everywhere, [*by_weight, *by_module])
    print_squashes(single)
    print_programs(read)
    for group in _GROUPS.value:
        print_training(read, int(group))


if __name__ == "__main__":
    entry()
