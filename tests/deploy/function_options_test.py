"""Options of single functions in a deployment."""

import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.options_plugin import (
    MAX_INSTRUCTIONS,
    FunctionOptions,
    environment,
    options_plugin,
    read_functions,
)
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from tests.deploy.conftest import run
from tests.deploy.sources import JUMPS, MAIN, SWITCH

CONSTANT = ("-two-entry-phi-node-folding-threshold=0", f"{JUMPS}=100")
MENU = (CONSTANT, (*CONSTANT, "-disable-lsr=true"), (CONSTANT[0], f"{JUMPS}=4"))
O2 = ("-disable-machine-licm=true",)


class Deployed:
    """A deployment for one compiler, in which `sum` and `act` have sets of their own, and a folder with a source."""

    def __init__(self, toolchain: Toolchain, folder: Path):
        self.toolchain, self.folder = toolchain, folder
        (folder / "act.c").write_text(SWITCH)
        self.by_plugin(FunctionOptions(MENU))
        bodies = read_functions(folder)
        self.options = FunctionOptions(MENU, {("sum", bodies["sum"]): 1, ("act", bodies["act"]): 2})
        sets = OptionSets({"Oz": CONSTANT, "O2": O2})
        self.deployment: Deployment = deploy(
            [], folder / "prefix", [toolchain.clang], options=sets, function_options=self.options
        )

    def by_plugin(self, options: FunctionOptions, *words: str) -> bytes:
        """The object of clang with the plugin."""
        variables = {**os.environ, **environment(options, self.folder)}
        loading = [load_option(options_plugin(self.toolchain)), *words]
        return self._object([str(self.toolchain.clang), f"-{options.level}", *loading], variables)

    def by_options(self, level: str, options: tuple[str, ...]) -> bytes:
        """The object of clang with options on the command line."""
        return self._object([str(self.toolchain.clang), level, *mllvm(options)], dict(os.environ))

    def driver(self, *words: str) -> tuple[bytes, str]:
        """The object of the driver, and what it prints."""
        done = run([str(self.deployment.driver()), *words, "-c", "act.c", "-o", "act.o"], self.folder)
        assert not done.returncode, done.stderr
        return (self.folder / "act.o").read_bytes(), done.stdout + done.stderr

    def _object(self, command: list[str], variables: dict[str, str]) -> bytes:
        subprocess.run([*command, "-c", "act.c", "-o", "act.o"], cwd=self.folder, env=variables, check=True)
        return (self.folder / "act.o").read_bytes()


@pytest.fixture(scope="module")
def deployed(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    return Deployed(toolchain, tmp_path_factory.mktemp("deployed"))


@pytest.mark.ci
def test_each_function_has_its_set_at_that_level(deployed: Deployed) -> None:
    found, printed = deployed.driver("-Oz")
    assert not printed
    assert found == deployed.by_plugin(deployed.options)
    constant = deployed.by_options("-Oz", CONSTANT)
    assert deployed.by_plugin(FunctionOptions(MENU)) == constant != found
    assert deployed.driver("-O2") == (deployed.by_options("-O2", O2), "")
    assert deployed.driver("-O1") == (deployed.by_options("-O1", ()), "")


def test_the_users_option_wins_in_every_function(deployed: Deployed) -> None:
    user = f"{JUMPS}=100"
    others = tuple(tuple(each for each in options if JUMPS not in each) for options in MENU)
    expected = deployed.by_plugin(FunctionOptions(others, deployed.options.choices), "-mllvm", user)
    assert deployed.driver("-Oz", "-mllvm", user) == (expected, "") != deployed.driver("-Oz")


def test_the_environment_changes_nothing(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = deployed.driver("-Oz")
    for name in ("MENU", "CHOICES", "PLUGIN", "TRIAL", "DEFAULT", "LOG", "STRICT"):
        monkeypatch.setenv(f"MLGO_OPTIONS_{name}", "/no/such/file")
    assert deployed.driver("-Oz") == expected


def test_a_linker_gets_the_constant_options_alone(deployed: Deployed) -> None:
    (deployed.folder / "main.c").write_text(MAIN)
    lto = ["-Oz", "-flto", "-fuse-ld=lld"]
    plainly, driver = [str(deployed.toolchain.clang), *lto], [str(deployed.deployment.driver()), *lto]
    assert run([*driver, "-c", "act.c", "main.c"], deployed.folder).returncode == 0
    programs = []
    for command, inputs in (
        (driver, "act.o main.o"),
        (driver, "act.c main.c"),  # at once
        ([*plainly, *(f"-Wl,-plugin-opt={option}" for option in CONSTANT)], "act.o main.o"),
        (plainly, "act.o main.o"),
    ):
        done = run([*command, *inputs.split(), "-o", "program"], deployed.folder)
        assert (done.returncode, done.stderr) == (0, "")
        programs.append((deployed.folder / "program").read_bytes())
    assert programs[0] == programs[1] == programs[2] != programs[3]


def test_another_target_has_its_own_options(deployed: Deployed) -> None:
    """The plugin's are for the compiler's own."""
    target = "--target=aarch64-linux-gnu"
    found = deployed.driver("-Oz", target)
    options = tuple(word for option in CONSTANT for word in ("-Xclang", "-mllvm", "-Xclang", option))
    plain = [str(deployed.toolchain.clang), "-Oz", target, *options]
    assert found == (deployed._object(plain, dict(os.environ)), "")


def test_backends_of_a_link_have_the_constant_options_alone(deployed: Deployed) -> None:
    clang, folder = str(deployed.toolchain.clang), deployed.folder
    assert run([clang, "-Oz", "-flto=thin", "-c", "act.c", "-o", "act.bc"], folder).returncode == 0
    linker = deployed.toolchain.tool("ld.lld")
    assert run([str(linker), "--thinlto-index-only", "-shared", "act.bc", "-o", "library"], folder).returncode == 0
    backend = ["-Oz", "-x", "ir", "act.bc", "-fthinlto-index=act.bc.thinlto.bc", "-c", "-o", "back.o"]
    objects = []
    for command in ([str(deployed.deployment.driver())], [clang, *mllvm(CONSTANT)], [clang]):
        done = run([*command, *backend], folder)
        assert (done.returncode, done.stderr) == (0, "")
        objects.append((folder / "back.o").read_bytes())
    assert objects[0] == objects[1] != objects[2]


def test_it_is_part_of_what_is_deployed(deployed: Deployed) -> None:
    info = run([str(deployed.deployment.driver()), "--mlgo-info"], deployed.folder).stdout
    assert "problem: pass_options\nlevels: -Oz\nplugin: " in info
    described = (deployed.folder / "prefix" / "share" / "mlgo" / "deployment.json").read_text()
    assert '"problem": "pass_options"' in described


@pytest.mark.ci
def test_a_damaged_plugin_leaves_the_constant_options(deployed: Deployed) -> None:
    plugin = deployed.deployment.plugin(deployed.toolchain.version[0], "options-Oz")
    whole = plugin.read_bytes()
    plugin.write_bytes(whole[:-1])
    try:
        found, printed = deployed.driver("-Oz")
    finally:
        deployed.deployment = deploy(
            [],
            deployed.folder / "prefix",
            [deployed.toolchain.clang],
            options=OptionSets({"Oz": CONSTANT, "O2": O2}),
            function_options=deployed.options,
        )
    assert found == deployed.by_options("-Oz", CONSTANT)
    assert "warning: mlgo: " in printed and "mlgo-options" in printed
    assert "; all functions get the same options; deploy the policy again" in printed


def test_one_compiler_only(deployed: Deployed, deployment: Deployment, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected one compiler for options of functions"):
        deploy(
            [],
            tmp_path / "prefix",
            list(deployment.clangs.values()),
            options=OptionSets({"Oz": CONSTANT}),
            function_options=deployed.options,
        )


@pytest.mark.slow
def test_compilers_try_the_sets_of_their_menus(deployed: Deployed, deployment: Deployment, tmp_path: Path) -> None:
    """In an installed prefix, where one of the compilers has options that the other does not know."""
    menu = (("-disable-lsr=true",), (f"{JUMPS}=4",), ("-disable-machine-cse=true",))
    sets = OptionSets({"Oz": CONSTANT, "O2": O2}, menus={"x86_64": {"Oz": menu, "Os": menu}})
    clangs = list(deployment.clangs.values())
    tried = deploy([], tmp_path / "prefix", clangs, options=sets, option_trials=2)
    assert {policy.name for policy in tried.policies} == {"options-Oz", "options-Os"}
    (tmp_path / "act.c").write_text(SWITCH)
    for major in tried.clangs:
        driver = [str(tried.driver(major=major)), "-c", "act.c", "-o", "act.o"]
        for level in ("-Oz", "-O2", "-Os"):
            assert run([*driver, level], tmp_path).returncode == 0
            found = (tmp_path / "act.o").read_bytes()
            if major != deployed.toolchain.version[0]:
                continue
            if level == "-O2":
                assert found == deployed.by_options("-O2", O2)
                continue
            name = level.removeprefix("-")
            chosen = FunctionOptions(sets.menu(name, "x86_64")[:3], level=name, trial=MAX_INSTRUCTIONS[name])
            assert found == deployed.by_plugin(chosen)
            assert (found != deployed.by_options(level, sets.options(name, "x86_64"))) or level == "-Os"


def test_a_compiler_without_a_menu_has_no_trials(deployed: Deployed, tmp_path: Path) -> None:
    sets = OptionSets({"Oz": CONSTANT}, menus={"riscv64": {"Oz": (("-disable-lsr=true",),)}})
    tried = deploy([], tmp_path / "prefix", [deployed.toolchain.clang], options=sets, option_trials=2)
    assert not tried.policies
    (tmp_path / "act.c").write_text(SWITCH)
    assert run([str(tried.driver()), "-Oz", "-c", "act.c", "-o", "act.o"], tmp_path).returncode == 0
    assert (tmp_path / "act.o").read_bytes() == deployed.by_options("-Oz", CONSTANT)
