import pytest

from compiler_opt.llvm.options_plugin import FOR_SIZE
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.pass_options.sets import shipped
from studies.option_trust import reason_against


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("enable-gvn-hoist", "does not run by itself"),
        ("attributor-enable", "does not run by itself"),
        ("regalloc", "does not run by itself"),
        ("limit-float-precision", "rely on"),
        ("disable-basic-aa", "rely on"),
        ("memdep-block-number-limit", "a limit of an analysis"),
        ("x86-experimental-pref-innermost-loop-alignment", "instructions do not show"),
        ("disable-block-placement", "instructions do not show"),
        ("use-mbpi", "instructions do not show"),
        ("disable-lsr", ""),
        ("csuses-threshold", ""),
    ],
)
def test_reasons(name: str, reason: str) -> None:
    found = reason_against(name)
    assert reason in found and bool(reason) == bool(found)


@pytest.mark.parametrize("major", [19, 22])
def test_nothing_distrusted_ships(major: int) -> None:
    sets = shipped(major)
    options = [
        option for levels in (sets.levels, *sets.targets.values()) for each in levels.values() for option in each
    ]
    menus = [options for levels in sets.menus.values() for menu in levels.values() for options in menu]
    options += [option for options in menus for option in options if option != FOR_SIZE]
    assert options and not any(reason_against(parse_option(option)[0]) for option in options)
