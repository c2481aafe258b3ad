"""The example of a Bazel toolchain, as far as it can be checked without Bazel: syntax, names, and tools."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.deploy.deployment import Deployment

FOLDER = Path(__file__).parents[2] / "docs" / "bazel"


class Recorder:
    """Stands for Bazel's functions: each call returns its name and arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def function(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Mapping[str, Any]:
            self.calls.append((name, {"arguments": arguments, **named}))
            return named

        return call

    def run(self, name: str, functions: str, **others: Any) -> dict[str, Any]:
        """Executes a file. Starlark is a subset of Python, apart from the functions that Bazel defines."""
        names: dict[str, Any] = {function: self.function(function) for function in functions.split()}
        names |= {"__builtins__": {}, **others}
        exec(compile((FOLDER / name).read_text(), name, "exec"), names)
        return names


@pytest.fixture
def config() -> Mapping[str, Any]:
    """What the rule gives to Bazel."""
    recorder = Recorder()
    actions = "c_compile cpp_compile cpp_link_executable cpp_link_dynamic_library cpp_link_nodeps_dynamic_library"
    defined = recorder.run(
        "mlgo_toolchain.bzl",
        "load feature flag_group flag_set tool_path rule",
        ACTION_NAMES=types.SimpleNamespace(**{name: name for name in actions.split()}),
        attr=types.SimpleNamespace(string=recorder.function("string"), string_list=recorder.function("string_list")),
        cc_common=types.SimpleNamespace(create_cc_toolchain_config_info=recorder.function("config")),
        CcToolchainConfigInfo="CcToolchainConfigInfo",
    )
    attributes = types.SimpleNamespace(prefix="/opt/mlgo", include_directories=["/usr/include"])
    config: Mapping[str, Any] = defined["_mlgo_toolchain_config_impl"](types.SimpleNamespace(attr=attributes))
    return config


@pytest.mark.ci
def test_its_tools_are_in_a_deployment(config: Mapping[str, Any], deployment: Deployment) -> None:
    paths = [Path(tool["path"]) for tool in config["tool_paths"]]
    ours = [path.relative_to("/opt/mlgo") for path in paths if path.is_relative_to("/opt/mlgo")]
    assert ours and all((deployment.prefix / path).exists() for path in ours)
    assert all(path in map(Path, ("/bin/false", "/usr/bin/strip")) for path in paths if "mlgo" not in path.parts)
    [optimized] = [feature for feature in config["features"] if feature["name"] == "opt"]
    assert optimized["flag_sets"][0]["flag_groups"][0]["flags"][0] == "-Oz"


def test_its_targets_refer_to_each_other() -> None:
    recorder = Recorder()
    functions = "load mlgo_toolchain_config filegroup cc_toolchain toolchain module bazel_dep register_toolchains"
    recorder.run("BUILD.bazel", functions)
    targets = {f":{call['name']}": call for name, call in recorder.calls if name != "load"}
    for call in targets.values():
        for value in call.values():
            if isinstance(value, str) and value.startswith(":"):
                assert value in targets, value
    loads = [call["arguments"] for name, call in recorder.calls if name == "load"]
    assert (":mlgo_toolchain.bzl", "mlgo_toolchain_config") in loads
    recorder.calls.clear()
    recorder.run("MODULE.bazel", functions)
    [registered] = [call["arguments"] for name, call in recorder.calls if name == "register_toolchains"]
    assert registered == ("//:mlgo_toolchain",)
    assert ":mlgo_toolchain" in targets
