"""CMake toolchain files that select the compilers of a deployment."""

from collections.abc import Collection, Iterable

_BUILD_TYPE = "MINSIZEREL"
_LEVEL_OF_CMAKE, _LEVEL_OF_POLICIES = "Os", "Oz"


def cmake_toolchain(suffix: str, levels_of_policies: Iterable[Collection[str]]) -> str:
    """A toolchain file, which finds the prefix relative to itself, and yields to a compiler that is given.

    Args:
      suffix: of the drivers, `-NN` or empty.
      levels_of_policies: at which each policy decides. If one does so at -Oz, but not at CMake's level for
        `MinSizeRel`, that build type gets -Oz, unless the user has set its options.
    """
    name = f"share/mlgo/toolchain{suffix}.cmake"
    lines = [
        f"# cmake -B build -DCMAKE_TOOLCHAIN_FILE=PREFIX/{name} -DCMAKE_BUILD_TYPE=MinSizeRel",
        'get_filename_component(MLGO_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)',
        "# A compiler that is given, as by -DCMAKE_C_COMPILER=, is kept.",
        *(
            line
            for language, name_of_driver in (("C", "mlgo-clang"), ("CXX", "mlgo-clang++"))
            for line in (
                f"if(NOT CMAKE_{language}_COMPILER)",
                f'  set(CMAKE_{language}_COMPILER "${{MLGO_PREFIX}}/bin/{name_of_driver}{suffix}")',
                "endif()",
            )
        ),
    ]
    if any(_LEVEL_OF_POLICIES in levels and _LEVEL_OF_CMAKE not in levels for levels in levels_of_policies):
        lines += [
            f"# A policy decides at -{_LEVEL_OF_POLICIES}, but CMake's own level is -{_LEVEL_OF_CMAKE}.",
            *(
                f'set(CMAKE_{language}_FLAGS_{_BUILD_TYPE} "-{_LEVEL_OF_POLICIES} -DNDEBUG" CACHE STRING '
                f'"Flags used by the {language} compiler during {_BUILD_TYPE} builds.")'
                for language in ("C", "CXX")
            ),
        ]
    return "\n".join(lines) + "\n"
