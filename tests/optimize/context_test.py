"""An optimisation continues after an interruption, and refuses the folder of another one."""

from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.optimize.context import STATE_NAME, State

IDENTITY = {"compiler": "clang 22", "source folder": "/s"}


def test_steps_are_remembered(tmp_path: Path) -> None:
    state = State(tmp_path, IDENTITY)
    with state.step("build") as step:
        step.result = {"objects": 3}
    with pytest.raises(KeyboardInterrupt), state.step("training") as step:
        step.result["begun"] = True
        raise KeyboardInterrupt
    again = State(tmp_path, IDENTITY)
    assert (again.is_done("build"), again.is_done("training"), again.is_done("report")) == (True, False, False)
    assert again.steps["build"].result == {"objects": 3}
    assert again.steps["training"].result == {"begun": True}
    before_s = again.steps["training"].wall_s
    with again.step("training"):
        pass
    assert again.steps["training"].wall_s >= before_s > 0
    again.forget("build", "absent")
    assert not State(tmp_path, IDENTITY).is_done("build")


def test_another_optimisation_is_refused(tmp_path: Path) -> None:
    with State(tmp_path, IDENTITY).step("build"):
        pass
    other = {**IDENTITY, "compiler": "clang 19"}
    with pytest.raises(ConfigError, match="holds an optimisation with another compiler; give another --output"):
        State(tmp_path, other)
    assert not State(tmp_path, other, start_over=True).is_done("build")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2, "steps": {}, "identity": {}}'])
def test_a_damaged_state_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / STATE_NAME).write_text(content)
    with pytest.raises(ConfigError, match=STATE_NAME):
        State(tmp_path, IDENTITY)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        State(tmp_path, IDENTITY)
