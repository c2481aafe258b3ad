"""An optimisation continues after an interruption, repeats what is stale, and refuses the folder of another one."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.optimize.state import STATE_NAME, Record, State

IDENTITY = {"compiler": "clang 22", "source folder": "/s"}


@dataclasses.dataclass(frozen=True)
class Found:
    minutes: float
    names: tuple[str, ...] = ("a",)


class Session:
    """A process with steps that tell what they do."""

    def __init__(self, folder: Path, *, start_over: bool = False):
        self.folder, self.done, self.echoed = folder, list[str](), list[str]()
        self.state = State(folder, IDENTITY, self.echoed.append, start_over=start_over)

    def step(self, name: str, minutes: float, *, inputs: Sequence[object] = (), after: Sequence[str] = ()) -> Found:
        def work(record: Record) -> Found:
            self.done.append(f"{name} continues" if record.continues else name)
            record.compiles += 1
            output.write_text("")
            return Found(minutes)

        output = self.folder / name
        return self.state.do(
            name,
            Found,
            work,
            inputs=inputs,
            after=after,
            outputs=[output],
            is_enough=lambda found: found.minutes >= minutes,
        )

    def run(self, source: str = "s", minutes: float = 1, option: str = "-Oz") -> list[str]:
        """Builds and tests, beside a search; the tests need what both have found."""
        self.step("build", 0, inputs=[source, Path("/p")])
        self.step("search", minutes, after=["build"])
        self.step("deploy", 0, inputs=[option])
        self.step("tests", 0, after=["build", "deploy"])
        return self.done


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({}, []),
        ({"source": "other"}, ["build", "search", "tests"]),
        ({"option": "-O2"}, ["deploy", "tests"]),
        ({"minutes": 0.5}, []),
        ({"minutes": 2}, ["search continues"]),
        ({"source": "other", "minutes": 2}, ["build", "search", "tests"]),
        ({"lost": "deploy"}, ["deploy continues"]),  # It makes the same again.
    ],
)
def test_what_is_stale_is_repeated_and_nothing_else(
    change: dict[str, str | float], repeated: list[str], tmp_path: Path
) -> None:
    assert Session(tmp_path).run() == ["build", "search", "deploy", "tests"]
    if lost := change.pop("lost", ""):
        (tmp_path / str(lost)).unlink()
    session = Session(tmp_path)
    assert session.run(**change) == repeated  # type: ignore[arg-type]
    assert len(session.echoed) == 4 - len(repeated)
    # What was true before is so no longer, if something else has been found since.
    back = [name for name in repeated if "continues" not in name]
    assert Session(tmp_path).run() == back


def test_results_have_their_types_and_costs_are_of_the_steps_in_use(tmp_path: Path) -> None:
    Session(tmp_path).run()
    session = Session(tmp_path)
    session.step("build", 0, inputs=["s", Path("/p")])
    assert session.step("search", 1, after=["build"]) == Found(1, ("a",))
    assert session.state.find("search", Found, after=["build"]) == Found(1)
    assert session.state.find("search", Found) is None
    assert session.state.find("report", Found) is None
    assert [(cost.step, cost.compiles) for cost in session.state.costs()] == [("build", 1), ("search", 1)]


def test_an_interrupted_step_goes_on(tmp_path: Path) -> None:
    def interrupted(record: Record) -> None:
        record.partial["outcomes"] = [1]
        raise KeyboardInterrupt

    def goes_on(record: Record) -> None:
        assert (record.continues, record.partial) == (True, {"outcomes": [1]}) and record.wall_s > 0

    first = State(tmp_path, IDENTITY)
    assert first.how_far() == "done: nothing yet; the same command resumes"
    first.do("build", type(None), lambda record: None)
    with pytest.raises(KeyboardInterrupt):
        first.do("bisection", type(None), interrupted)
    assert first.how_far() == "done: build; the same command resumes"
    again = State(tmp_path, IDENTITY)
    assert again.do("bisection", type(None), goes_on) is None
    (cost,) = again.costs()
    assert cost.wall_s > 0


def test_another_optimisation_is_refused_or_starts_over(tmp_path: Path) -> None:
    first = Session(tmp_path)
    first.run()
    other = {**IDENTITY, "compiler": "clang 19"}
    with pytest.raises(ConfigError, match="holds an optimisation with another compiler; give another --output_dir"):
        State(tmp_path, other)
    assert State(tmp_path, other, start_over=True).find("deploy", Found, inputs=["-Oz"]) is None
    # The next nightly build starts over if the last one is finished.
    assert Session(tmp_path, start_over=True).run() == []
    first.state.save(finished=True)
    assert Session(tmp_path).run() == []
    first.state.save(finished=True)
    assert len(Session(tmp_path, start_over=True).run()) == 4


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "steps": {}, "identity": {}}'])
def test_a_damaged_state_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / STATE_NAME).write_text(content)
    with pytest.raises(ConfigError, match=STATE_NAME):
        State(tmp_path, IDENTITY)


def test_a_result_of_another_form_is_refused(tmp_path: Path) -> None:
    Session(tmp_path).run()
    with pytest.raises(ConfigError, match=r"state.json: deploy: .*remove .*, or give another --output_dir"):
        State(tmp_path, IDENTITY).find("deploy", Record, inputs=["-Oz"])


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        State(tmp_path, IDENTITY)
