"""Reading gin into dataclasses, and messages for wrong bindings."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.tools import gin_settings


@dataclasses.dataclass(frozen=True)
class Cooking:
    minutes: int = 5
    heat: float = 0.5
    dish: str = "soup"
    spices: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1,)
    lid: bool | None = None
    swaps: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minutes < 1:
            raise ValueError(f"minutes: expected at least 1, found {self.minutes}")


@dataclasses.dataclass(frozen=True)
class Serving:
    plates: int = 2


CLASSES = {"cooking": Cooking, "serving": Serving}


def test_without_bindings_the_defaults_apply() -> None:
    assert gin_settings.read(CLASSES, [], []) == {"cooking": Cooking(), "serving": Serving()}


def test_bindings_override_files_and_files_include_others(tmp_path: Path) -> None:
    (tmp_path / "common.gin").write_text("serving.plates = 7\ncooking.minutes = 8\n")
    (tmp_path / "main.gin").write_text("include 'common.gin'\ncooking.minutes = 9\ncooking.heat = 1\n")
    settings = gin_settings.read(CLASSES, [str(tmp_path / "main.gin")], ["cooking.spices = ['salt']"])
    assert settings == {"cooking": Cooking(minutes=9, heat=1, spices=("salt",)), "serving": Serving(plates=7)}


def test_earlier_settings_are_forgotten() -> None:
    gin_settings.read(CLASSES, [], ["cooking.minutes = 9"])
    assert gin_settings.read({"cooking": Cooking}, [], []) == {"cooking": Cooking()}


def test_a_name_can_be_another_class_later() -> None:
    gin_settings.read({"cooking": Cooking}, [], [])
    assert gin_settings.read({"cooking": Serving}, [], ["cooking.plates = 3"]) == {"cooking": Serving(3)}


@pytest.mark.parametrize(
    ("binding", "complaint"),
    [
        ("cooking.minute = 3", "minute"),
        ("baking.minutes = 3", "baking"),
        ("cooking.minutes = 'long'", "cooking.minutes: expected int, found 'long'"),
        ("cooking.minutes = 1.5", "cooking.minutes: expected int, found 1.5"),
        ("cooking.minutes = True", "cooking.minutes: expected int, found True"),
        ("cooking.heat = 'high'", "cooking.heat: expected float, found 'high'"),
        ("cooking.sizes = (1, 'b')", "cooking.sizes: expected"),
        ("cooking.sizes = 3", "cooking.sizes: expected"),
        ("cooking.lid = 3", "cooking.lid: expected"),
        ("cooking.swaps = {'a': 'b'}", "cooking.swaps: expected"),
        ("cooking.swaps = {1: 2}", "cooking.swaps: expected"),
        ("cooking.swaps = ['a']", "cooking.swaps: expected"),
        ("cooking.minutes = 0", "cooking.minutes: expected at least 1, found 0"),
        ("cooking.minutes", "cooking.minutes"),
    ],
)
def test_a_wrong_value_is_one_line(binding: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gin_settings.read(CLASSES, [], [binding])
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "binding", ["cooking.lid = None", "cooking.lid = True", "cooking.heat = 2", "cooking.swaps = {'a': 2}"]
)
def test_values_of_the_right_types_are_accepted(binding: str) -> None:
    gin_settings.read(CLASSES, [], [binding])


@pytest.mark.parametrize(
    ("binding", "named"),
    [
        ("serving.third = 3", "third"),
        ("unheard_of.first = 3", "unheard_of"),
        ("serving.plates = ", "parse"),
        ("serving.plates = (1", "EOF"),
        ("serving.plates", "parse"),
        ("serving.plates = @unheard_of", "unheard_of"),
        ("serving.plates = %UNHEARD_OF", "UNHEARD_OF"),
        ("import unheard_of", "unheard_of"),
        ("serving.plates = " + "[" * 5000, "recursion|too many nested parentheses"),
        ("serving.plates = " + "[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("serving.plates = 1" + "0" * 400, "an integer of more than 128 bits"),
        ("serving.plates = {[]: 1}", "unhashable"),
    ],
)
def test_a_wrong_binding_is_named(binding: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gin_settings.read(CLASSES, [], [binding])
    message = str(caught.value)
    assert re.search(named, message) and "\n" not in message


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.gin"
    file.write_text("serving.plates = 3\nserving.third = 3\n")
    with pytest.raises(ConfigError, match=r"some\.gin.*'third'.*line 2"):
        gin_settings.read(CLASSES, [str(file)], [])
    with pytest.raises(ConfigError, match=r"missing\.gin: no such file"):
        gin_settings.read(CLASSES, [str(tmp_path / "missing.gin")], [])


@pytest.mark.parametrize(
    ("bindings", "complaint"),
    [
        (["minutes = 3"], "nothing uses 'minutes'"),
        (["cokking.minutes = 3"], "there is no 'cokking'"),
        (["some/cooking.minutes = 3"], "some/cooking: scopes have no meaning here"),
        (["some/minutes = 3"], "some/minutes: scopes have no meaning here"),
        (["cooking.minutes = @serving"], "@serving: expected a value, found a reference to a function"),
        (["a = %b", "b = %a", "cooking.minutes = %a"], "recursion"),
        (["gin.macro.value = 3"], "there is no 'gin.macro'"),
    ],
)
def test_no_binding_is_ignored(bindings: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gin_settings.read(CLASSES, [], bindings)
    assert complaint in str(caught.value)


def test_a_setting_of_another_command_is_not_taken_for_a_foreign_one() -> None:
    with pytest.raises(ConfigError, match=r"train_eval\.num_iterations is a setting of other commands"):
        gin_settings.read(gin_settings.of_compilations(), [], ["train_eval.num_iterations = 3"])
    with pytest.raises(ConfigError, match=r"ppo\.learning_rate is a setting of other commands"):
        gin_settings.read(gin_settings.of_cloning(), [], ["ppo.learning_rate = 3.0"])


@pytest.mark.parametrize(
    ("algorithm", "unused", "binding", "reason"),
    [
        ("ppo", ["vocabulary"], "vocabulary.num_quantiles = 3", "this command does not use vocabulary.num_quantiles"),
        ("dqn", [], "ppo.learning_rate = 1.0", "train_eval.algorithm is 'dqn'"),
        ("ppo", [], "ppo.learning_rate = 1.0", ""),
        ("dqn", [], "advantages.credit = 'module'", ""),
        ("ppo", ["vocabulary"], "network.fc_layer_params = (3,)", ""),
    ],
)
def test_a_binding_without_effect_is_named(
    algorithm: str,
    unused: list[str],
    binding: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a file, which serves several commands, it is no mistake."""
    (tmp_path / "all.gin").write_text(f"train_eval.algorithm = '{algorithm}'\nvocabulary.num_quantiles = 5\nppo:\n")
    with (tmp_path / "all.gin").open("a") as file:
        file.write("  num_epochs = 2\n")
    gin_settings.read(gin_settings.of_training(), [str(tmp_path / "all.gin")], [binding], unused)
    expected = [f"warning: --gin_bindings={binding}: has no effect, as {reason}"] if reason else []
    assert capsys.readouterr().err.splitlines() == expected


def test_macros_blocks_and_nested_values(tmp_path: Path) -> None:
    file = tmp_path / "some.gin"
    file.write_text("size = 4\nname = 'a'\ncooking:\n  minutes = %size\n  sizes = (%size, 5)\n  swaps = {%name: 1}\n")
    settings = gin_settings.read(CLASSES, [str(file)], ["size = 6"])
    assert settings["cooking"] == Cooking(minutes=6, sizes=(6, 5), swaps={"a": 1})


def test_includes_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "top.gin").write_text("include 'a/middle.gin'\n")
    (tmp_path / "a" / "middle.gin").write_text("include 'b/low.gin'\n")
    (tmp_path / "a" / "b" / "low.gin").write_text("serving.plates = 9\n")
    monkeypatch.chdir("/")
    assert gin_settings.read(CLASSES, [str(tmp_path / "top.gin")], [])["serving"] == Serving(9)
    (tmp_path / "a" / "b" / "low.gin").write_text("include '../../top.gin'\n")
    with pytest.raises(ConfigError, match="includes itself"):
        gin_settings.read(CLASSES, [str(tmp_path / "top.gin")], [])
    (tmp_path / "a" / "b" / "low.gin").write_text("include 'none.gin'\n")
    with pytest.raises(ConfigError, match=r"include 'none.gin': no such file \(line 1 of .*low.gin\); fix the file"):
        gin_settings.read(CLASSES, [str(tmp_path / "top.gin")], [])


def test_names_of_ml_compiler_opt_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    bindings = [
        "clang_path = '/x/clang'",
        "llvm_size_path = '/x/size'",
        "llvm_size_path = '/x/size'",
        "problem_config.flags_to_add.add_flags = ('-Oz',)",
        "problem_config.flags_to_delete.delete_flags = ('-Os',)",
        "problem_config.flags_to_replace.replace_flags = {'-target-cpu': 'x'}",
        "config_registry.get_configuration.implementation = @configs.RegallocPriorityConfig",
    ]
    settings = gin_settings.read(gin_settings.of_compilations(), [], bindings)
    assert settings["command"] == gin_settings.CommandConfig("regalloc_priority", "/x/clang")
    assert settings["problem_config"].flags_to_add == ("-Oz",)
    assert settings["problem_config"].flags_to_delete == ("-Os",)
    assert settings["problem_config"].flags_to_replace == {"-target-cpu": "x"}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) == 6
    assert all(line.startswith("note: ") for line in lines)
