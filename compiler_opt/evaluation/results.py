"""Results of an evaluation: by module, by project, and in total.

Policies are identified by their names: the compiler's own heuristic is `default`, `Evaluation.policy` is evaluated, and
the others are baselines. The default with options of LLVM's passes is `options`, a policy with these `POLICY+options`.
*Changes* are relative to the default; negative is smaller.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from compiler_opt.evaluation import statistics
from compiler_opt.llvm.object_file import TextParts
from compiler_opt.problem import Problem
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import data_frame

DEFAULT = "default"

OPTIONS = "options"
"""The default with options of LLVM's passes; also the ending of a policy's name with these."""

NEVER_WORSE = "never worse"
"""Not a policy: for each module the policy's object if it is better (`TextParts.is_better`) than the default's, which
is taken otherwise, as `deploy --never_worse`."""

PARTS = tuple(field.name for field in dataclasses.fields(TextParts))


@dataclasses.dataclass(frozen=True)
class Output:
    """A module compiled under a policy.

    Attributes:
      text: text of the object.
      score: the problem's score, which policies are trained to lower.
      num_decisions: number of the policy's decisions; 0 for a plain compilation.
      cpu_s: CPU seconds of the compiler.
      host_cpu_s: CPU seconds of the process that evaluates the policy for it.
    """

    text: TextParts
    score: float
    num_decisions: int
    cpu_s: float
    host_cpu_s: float

    @property
    def text_bytes(self) -> int:
        return self.text.total


@dataclasses.dataclass(frozen=True)
class ModuleResult:
    """A module.

    Attributes:
      outputs: by policy, without those that failed.
      failures: policy -> reason, one line.
    """

    name: str
    project: str
    language: str
    outputs: Mapping[str, Output]
    failures: Mapping[str, str]

    def output(self, policy: str) -> Output:
        """The policy's output, or the default's if the policy failed."""
        return self.outputs.get(policy, self.outputs[DEFAULT])

    def score_change(self, policy: str) -> float:
        return statistics.relative_change(self.outputs[DEFAULT].score, self.output(policy).score)

    def change(self, policy: str) -> float:
        """Change of the object's text."""
        return statistics.relative_change(self.outputs[DEFAULT].text_bytes, self.output(policy).text_bytes)


@dataclasses.dataclass(frozen=True)
class ProjectResult:
    """The modules of a project, and the program that they are linked into.

    Attributes:
      modules: modules that the default compiles.
      excluded: module -> reason, for modules that the default fails to compile; left out of all numbers.
      linked: text of the linked program, by policy and `NEVER_WORSE`, without those that failed to link.
      link_failures: policy -> reason.
      shared: as `linked`, of the shared library that the modules are linked into; empty if they were not.
    """

    name: str
    modules: tuple[ModuleResult, ...]
    excluded: Mapping[str, str]
    linked: Mapping[str, TextParts]
    link_failures: Mapping[str, str]
    shared: Mapping[str, TextParts] = dataclasses.field(default_factory=dict)

    def of(self, shared: bool) -> Mapping[str, TextParts]:
        """Text of the shared library or the program, by policy."""
        return self.shared if shared else self.linked

    @property
    def linked_bytes(self) -> dict[str, int]:
        """All text of the linked programs."""
        return {name: parts.total for name, parts in self.linked.items()}

    @property
    def language(self) -> str:
        """The language of most of the default's text."""
        text_bytes: dict[str, int] = {}
        for module in self.modules:
            text_bytes[module.language] = text_bytes.get(module.language, 0) + module.outputs[DEFAULT].text_bytes
        return max(sorted(text_bytes), key=text_bytes.__getitem__, default="?")

    @property
    def languages(self) -> str:
        """The languages of its modules, e.g. `C, C++`."""
        return ", ".join(sorted({module.language for module in self.modules}))

    def object_bytes(self, policy: str) -> int:
        """Sum of the objects' text, with the default's objects where the policy failed."""
        return sum(module.output(policy).text_bytes for module in self.modules)

    def score(self, policy: str) -> float:
        """Sum of the modules' scores."""
        return sum(module.output(policy).score for module in self.modules)

    def object_change(self, policy: str) -> float:
        return statistics.relative_change(self.object_bytes(DEFAULT), self.object_bytes(policy))

    def score_change(self, policy: str) -> float:
        return statistics.relative_change(self.score(DEFAULT), self.score(policy))

    def linked_change(self, policy: str, part: str = "total", *, shared: bool = False) -> float | None:
        """Change of the linked program's text, or of a part of it; None if either could not be linked.

        `shared` is for the shared library instead.
        """
        linked = self.of(shared)
        if policy not in linked or DEFAULT not in linked:
            return None
        return statistics.relative_change(*(getattr(linked[name], part) for name in (DEFAULT, policy)))

    def contribution(self, policy: str, part: str, *, shared: bool = False) -> float:
        """What a part adds to `linked_change`: its difference over all text; 0 if either could not be linked."""
        linked = self.of(shared)
        if self.linked_change(policy, shared=shared) is None or not linked[DEFAULT].total:
            return 0.0
        before, after = (getattr(linked[name], part) for name in (DEFAULT, policy))
        return float(after - before) / linked[DEFAULT].total

    def num_substituted(self, policy: str) -> int:
        """The number of failed compilations, for which the default's object is used."""
        return sum(policy in module.failures for module in self.modules)

    def summary(self, policies: Sequence[str]) -> dict[str, Any]:
        """The project under the default and these policies, as JSON values."""
        return {
            "project": self.name,
            "languages": self.languages,
            "language": self.language,
            "num_modules": len(self.modules),
            "num_excluded": len(self.excluded),
            "default_linked_bytes": self.linked_bytes.get(DEFAULT),
            "default_object_bytes": self.object_bytes(DEFAULT),
            "never_worse_change": self.linked_change(NEVER_WORSE),
            "linked_parts": {name: dataclasses.asdict(parts) for name, parts in self.linked.items()},
            "shared_parts": {name: dataclasses.asdict(parts) for name, parts in self.shared.items()},
            "policies": {
                policy: {
                    "linked_bytes": self.linked_bytes.get(policy),
                    "linked_change": self.linked_change(policy),
                    "code_change": self.linked_change(policy, "code"),
                    "object_bytes": self.object_bytes(policy),
                    "object_change": self.object_change(policy),
                    "score_change": self.score_change(policy),
                    "num_failures": self.num_substituted(policy),
                }
                for policy in policies
            },
        }


@dataclasses.dataclass(frozen=True)
class Total:
    """A policy against the default, over all projects.

    Attributes:
      default_linked_bytes: sum over the projects that were linked under both.
      linked_bytes: the policy's sum over the same projects.
      linked: comparison of the linked text of the same projects; its mean counts all projects the same.
      code: comparison of the code among it.
      objects: comparison of the modules' object text.
      scores: comparison of the modules' scores (for inlining, COMDAT-weighted text bytes).
      project_scores: comparison of the projects' scores.
      num_failures: failed compilations, for which the default's object is used.
      cpu_s: CPU seconds of its compilations.
      host_cpu_s: CPU seconds of the processes that evaluate the policy for them.
    """

    policy: str
    default_linked_bytes: int
    linked_bytes: int
    linked: statistics.Comparison
    code: statistics.Comparison
    objects: statistics.Comparison
    scores: statistics.Comparison
    project_scores: statistics.Comparison
    num_failures: int
    cpu_s: float
    host_cpu_s: float

    @property
    def linked_change(self) -> float:
        return statistics.relative_change(self.default_linked_bytes, self.linked_bytes)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed compilation or link: `where` is a module or a project."""

    policy: str
    where: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
      policy: what is evaluated: a policy, a policy with options, or options.
      projects: in the order of the corpus.
      started_at: local time, ISO 8601 to the minute.
      wall_s: duration in seconds.
      seed: seed of the random baseline and of the bootstrap.
      provenance: compiler, flags, corpus, policy, ..., as text, in order.
      alone: options and the policy, each alone, if both are evaluated.
    """

    problem: Problem
    policy: str
    baselines: tuple[str, ...]
    projects: tuple[ProjectResult, ...]
    started_at: str
    wall_s: float
    seed: int
    provenance: Mapping[str, str]
    alone: tuple[str, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of all policies except the default and baselines; the last is `policy`."""
        return (*self.alone, self.policy)

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of all policies except the default."""
        return (*self.variants, *self.baselines)

    @property
    def policy_alone(self) -> str | None:
        """The policy without options; None if only options are evaluated."""
        return next((name for name in reversed(self.alone or (self.policy,)) if name != OPTIONS), None)

    @property
    def modules(self) -> list[ModuleResult]:
        return [module for project in self.projects for module in project.modules]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all successful compilations, including those of this project's processes."""
        return sum(o.cpu_s + o.host_cpu_s for module in self.modules for o in module.outputs.values())

    @functools.cached_property
    def totals(self) -> dict[str, Total]:
        """Totals by policy, without the default."""
        return {policy: self._total(policy) for policy in self.policies}

    def to_dataframe(self, by: Literal["project", "module"] = "project") -> Any:
        """A `pandas.DataFrame` with a row for each project, or module, and each policy but the default.

        Sizes are bytes, changes fractions of the default's; both are None where something could not be linked.

        Raises:
          MissingPackageError: pandas is not installed.
        """
        from compiler_opt.evaluation import records

        return data_frame(records.by_project(self) if by == "project" else records.by_module(self))

    def __str__(self) -> str:
        """The tables that `evaluate` prints."""
        from compiler_opt.evaluation import report

        return report.terminal_table(self)

    def __repr__(self) -> str:
        counts = f"{count_text(len(self.projects), 'project')}, {count_text(len(self.modules), 'module')}"
        default, linked = map(sum, self.linked_bytes(self.policy))
        change = statistics.relative_change(default, linked) if default else None
        return f"Evaluation({self.policy!r}, {counts}, linked text {change_text(change)})"

    def never_worse_change(self, part: str = "total") -> float | None:
        """Change of linked text, or of a part, with `NEVER_WORSE`, all projects together; None if none was linked."""
        if all(project.linked_change(NEVER_WORSE) is None for project in self.projects):
            return None
        default, never_worse = self.linked_bytes(NEVER_WORSE, part)
        return statistics.relative_change(sum(default), sum(never_worse))

    def linked_bytes(
        self, name: str, part: str = "total", language: str | None = None, *, shared: bool = False
    ) -> tuple[list[int], list[int]]:
        """Linked text, or a part of it, under the default and under `name`, of the projects linked under both.

        `language` chooses projects (None: all); `shared` chooses their shared libraries.
        """
        chosen = [project for project in self.projects if language in (None, project.language)]
        linked = [each.of(shared) for each in chosen if each.linked_change(name, shared=shared) is not None]
        default, other = ([getattr(parts[who], part) for parts in linked] for who in (DEFAULT, name))
        return default, other

    def _total(self, policy: str) -> Total:
        outputs = [module.outputs[policy] for module in self.modules if policy in module.outputs]
        default_linked_bytes, linked_bytes = self.linked_bytes(policy)
        return Total(
            policy=policy,
            default_linked_bytes=sum(default_linked_bytes),
            linked_bytes=sum(linked_bytes),
            linked=statistics.compare_projects(default_linked_bytes, linked_bytes),
            code=statistics.compare_projects(*self.linked_bytes(policy, "code")),
            objects=self._compare(policy, lambda output: output.text_bytes),
            scores=self._compare(policy, lambda output: output.score),
            project_scores=statistics.compare_projects(
                [project.score(DEFAULT) for project in self.projects],
                [project.score(policy) for project in self.projects],
            ),
            num_failures=sum(project.num_substituted(policy) for project in self.projects),
            cpu_s=sum(output.cpu_s for output in outputs),
            host_cpu_s=sum(output.host_cpu_s for output in outputs),
        )

    def _compare(self, policy: str, size: Callable[[Output], float]) -> statistics.Comparison:
        modules = self.modules
        return statistics.compare(
            [size(module.outputs[DEFAULT]) for module in modules],
            [size(module.output(policy)) for module in modules],
            [module.project for module in modules],
            seed=self.seed,
        )

    def failures(self) -> list[Failure]:
        """All failures, the default's (which exclude a module) first."""
        found = []
        for project in self.projects:
            found += [Failure(DEFAULT, name, why) for name, why in project.excluded.items()]
            found += [Failure(who, f"{project.name} (link)", why) for who, why in project.link_failures.items()]
            found += [Failure(who, m.name, why) for m in project.modules for who, why in m.failures.items()]
        return sorted(found, key=lambda failure: failure.policy != DEFAULT)

    def summary(self) -> dict[str, Any]:
        """Everything except single modules, as JSON values; sizes in bytes, times in seconds, changes as fractions."""
        return {
            "problem": self.problem.name,
            "policy": self.policy_alone,
            "evaluated": self.policy,
            "started_at": self.started_at,
            "wall_s": round(self.wall_s, 1),
            "seed": self.seed,
            "num_modules": len(self.modules),
            "intervals": {
                "confidence": statistics.CONFIDENCE,
                "over_projects": "Student's t: linked, code, project_scores, languages",
                "over_modules": f"bootstrap within projects, {statistics.NUM_RESAMPLES} resamples: objects, scores",
            },
            "provenance": dict(self.provenance),
            "totals": {
                policy: {**statistics.to_json(total), "linked_change": total.linked_change}
                for policy, total in self.totals.items()
            },
            "never_worse_change": self.never_worse_change(),
            "never_worse_code_change": self.never_worse_change("code"),
            "projects": [project.summary(self.policies) for project in self.projects],
            "failures": [dataclasses.asdict(failure) for failure in self.failures()],
        }
