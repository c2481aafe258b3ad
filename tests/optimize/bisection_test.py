"""Builds in which some objects are compiled plainly, and the others as in the optimised build."""

from pathlib import Path

from compiler_opt.llvm.toolchain import probe
from compiler_opt.optimize.bisection import MixedBuild
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import plain_compilers
from tests.optimize.speed_programs import database, link_command


def test_options_of_the_optimised_build_are_those_of_its_objects_alone(tmp_path: Path) -> None:
    program = DatabaseProgram(database(tmp_path / "source"), [link_command()], 2)
    clang = plain_compilers(probe("clang-22"))
    mixed = MixedBuild(program, tmp_path / "mixed", ["-O2"], clang, clang, ["-Xclang", "-disable-llvm-passes"])

    def sizes() -> dict[str, int]:
        paths = [source.object.path for source in program.sources(mixed.variant)]
        return {path.relative_to(tmp_path / "mixed").as_posix(): path.stat().st_size for path in paths}

    assert mixed.build([], lambda done, total: None) == 0
    unoptimised = sizes()
    [work] = [name for name in unoptimised if "work" in name]
    assert mixed.build([work], lambda done, total: None) == 1
    plain = sizes()
    assert {name for name in plain if plain[name] != unoptimised[name]} == {work}
