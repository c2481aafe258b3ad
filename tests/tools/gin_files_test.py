"""Gin files are found by path, by the name of one that ships, and by google/ml-compiler-opt's paths."""

from pathlib import Path

import pytest

from compiler_opt.tools import gin_files, gin_settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without gin files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_package_links_to_the_files_of_the_repository() -> None:
    assert gin_files.FOLDER.samefile(ROOT / "gin_configs")
    assert gin_files.FOLDER.readlink() == Path("../gin_configs")
    assert [gin_files.FOLDER / f"{name}.gin" for name in gin_files.names()] == sorted(gin_files.FOLDER.rglob("*.gin"))


@pytest.mark.parametrize(
    "name",
    [
        "inlining/ppo",
        "inlining/ppo_nn_agent",
        "inlining/ppo_nn_agent.gin",
        "gin_configs/inlining/ppo_nn_agent.gin",
        "./gin_configs/inlining/ppo",
    ],
)
def test_names_of_files_that_ship(name: str) -> None:
    assert gin_files.find(name) == (gin_files.FOLDER / "inlining/ppo_nn_agent.gin", "")


def test_a_path_of_ml_compiler_opt() -> None:
    path, note = gin_files.find("compiler_opt/rl/regalloc/gin_configs/ppo_nn_agent.gin")
    assert path == gin_files.FOLDER / "regalloc_eviction/ppo_nn_agent.gin"
    assert note.endswith(
        "/regalloc/gin_configs/ppo_nn_agent.gin is gin_configs/regalloc_eviction/ppo_nn_agent.gin here"
    )


def test_a_file_of_the_working_folder_comes_first(elsewhere: Path) -> None:
    file = elsewhere / "inlining" / "ppo_nn_agent.gin"
    file.parent.mkdir()
    (file.parent / "ppo").mkdir()  # a folder is no gin file
    assert gin_files.find("inlining/ppo") == (gin_files.FOLDER / "inlining/ppo_nn_agent.gin", "")
    file.write_text("train_eval.num_modules = 3\n")
    assert gin_files.find("inlining/ppo_nn_agent.gin") == (Path("inlining/ppo_nn_agent.gin"), "")
    path, note = gin_files.find("inlining/dqn")
    assert path == gin_files.FOLDER / "inlining/dqn_nn_agent.gin"
    assert note == f"--gin_files=inlining/dqn: no such file here; takes the one that ships, {path}"


def test_a_file_includes_one_that_ships(elsewhere: Path) -> None:
    (elsewhere / "mine.gin").write_text("include 'inlining/ppo'\ntrain_eval.num_modules = 3\n")
    settings = gin_settings.read(gin_settings.of_training(), ["mine.gin"], [])
    assert settings["train_eval"].num_modules == 3
    assert settings["network"].fc_layer_params == (64, 64)  # of common.gin, which that file includes


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("inlining/pop", ["inlining"]),
        ("gin_configs/regalloc_eviction/pop.gin", ["regalloc_eviction"]),
        ("compiler_opt/rl/regalloc_priority/gin_configs/pop.gin", ["regalloc_priority"]),
        ("pop", ["inlining", "regalloc_eviction", "regalloc_priority"]),
        ("/no/such/pop.gin", []),
    ],
)
def test_otherwise_the_message_lists_what_ships(path: str, expected: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^no such file") as caught:
        gin_files.find(path)
    message = str(caught.value)
    listed = [
        problem for problem in ("inlining", "regalloc_eviction", "regalloc_priority") if f"{problem}/{{" in message
    ]
    assert listed == expected
    assert all("expected a path, or one of those that ship" in message and ",ppo," in message for _ in expected)
