"""The flags for options of LLVM's passes."""

from pathlib import Path
from typing import Literal

from absl import flags

from compiler_opt.deploy.pass_options import AUTO, NO_OPTIONS, UsableOptions, usable_options
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.shared_flags import NONE


class OptionsFlag:
    """`--options`: options of LLVM's passes for each optimisation level; `--option_trials`, if that is asked for."""

    def __init__(self, text: str, *, default: str | None = AUTO, has_trials: bool = False):
        """`text` says what they are for, and `default`, if not None, is the value without the flag."""
        forms = "auto for those that ship, none, or a JSON file (docs/pass_options.md)"
        self._flag = flags.DEFINE_string("options", default, text.format(forms=forms))
        self._trials = None
        if has_trials:
            self._trials = flags.DEFINE_integer(
                "option_trials",
                0,
                "Further sets of options that the compiler tries on each function: it generates the module's code with "
                "each of them, which takes that much longer, and takes the smallest code that is about as fast. Those "
                "that ship are ordered by what they gain: 3 gain most of it.",
                0,
                100,
            )
            self._pass_plugin = shared_flags.path(
                "pass_plugin",
                "A pass plugin of your own, whose options and passes the menu of --options may have "
                "(docs/new_pass.md); the compiler loads it.",
            )

    @property
    def name(self) -> str:
        return str(self._flag.name)

    @property
    def present(self) -> bool:
        """Whether the user gave it."""
        return bool(self._flag.present)

    @property
    def value(self) -> str | None:
        """As the user gave it; the default otherwise."""
        value: str | None = self._flag.value
        return value

    @property
    def trials(self) -> int:
        """Of `--option_trials`."""
        return self._trials.value if self._trials is not None else 0

    @property
    def pass_plugin(self) -> Path | None:
        """Of `--pass_plugin`; raises ConfigError if there is no such file, or if nothing is tried."""
        path: Path | None = self._pass_plugin.value if self._trials is not None else None
        if path is None:
            return None
        if not path.is_file():
            raise ConfigError(f"--pass_plugin={path}: no such file")
        if not self.trials:
            raise ConfigError(f"--pass_plugin={path}: only trials use it; give --option_trials")
        return path

    def read(self, default: str = AUTO) -> OptionSets | Literal["auto"]:
        """What is asked for, or what `default` asks for if nothing is; raises ConfigError if a file cannot be read."""
        name = default if self.value is None else self.value
        if name == AUTO:
            return AUTO
        return NO_OPTIONS if name == NONE else OptionSets.load(Path(name))

    def usable(self, toolchain: Toolchain, default: str = AUTO) -> OptionSets:
        """Those that a compiler can take; warns of the others in the user's file. Raises as `read`."""
        found = usable_options(self.read(default), toolchain, self.trials, self.pass_plugin)
        self.warn(found)
        return found.sets

    def warn(self, found: UsableOptions, compiler: str = "") -> None:
        """Warns of options in the user's file that a compiler cannot take, and of trials that it cannot make."""
        for line in found.summary() if self.value not in (None, AUTO) else ():
            entry_point.warn(f"--options: {compiler}{line}")
        if self.trials and not found.sets.menus:
            entry_point.warn(
                f"--option_trials: {compiler}no sets to try: its options have no menu (docs/pass_options.md), so all "
                "functions get the same"
            )
