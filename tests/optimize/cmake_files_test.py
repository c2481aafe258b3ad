"""The settings that are copied from a user's build folder."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.optimize.cmake_files import CMakeCache, Entry, initial_cache

CACHE = """
# A comment
//A comment
CMAKE_HOME_DIRECTORY:INTERNAL=/source
CMAKE_GENERATOR:INTERNAL=Ninja
CMAKE_BUILD_TYPE:STRING=Release
CMAKE_AR:FILEPATH=/usr/bin/ar
CMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++
CMAKE_CXX_COMPILER_LAUNCHER:STRING=ccache
CMAKE_CXX_CLANG_TIDY:STRING=clang-tidy
CMAKE_TOOLCHAIN_FILE:FILEPATH=/source/toolchain.cmake
CMAKE_CXX_FLAGS:STRING=-O3 -flto=thin -DX="a b"
WITH_ZLIB:BOOL=ON
ZLIB_LIBRARY:FILEPATH=/usr/lib/libz.so
NOWHERE_LIBRARY:FILEPATH=NOWHERE_LIBRARY-NOTFOUND
Own_DIR:PATH={build}/own
GIVEN:UNINITIALIZED=by hand
EMPTY:STRING=
BLANK:STRING=' x '
"odd:name":STRING=value
shapes_SOURCE_DIR:STATIC=/source
FETCHCONTENT_SOURCE_DIR_GTEST:PATH=
FETCHCONTENT_SOURCE_DIR_ABSENT:PATH=
"""


@pytest.fixture
def cache(tmp_path: Path) -> CMakeCache:
    (tmp_path / "_deps" / "gtest-src").mkdir(parents=True)
    (tmp_path / "CMakeCache.txt").write_text(CACHE.format(build=tmp_path))
    return CMakeCache.read(tmp_path)


def test_settings(cache: CMakeCache) -> None:
    assert (cache.source, cache.build_type, cache.is_on("WITH_ZLIB")) == (Path("/source"), "Release", True)
    assert {name: entry.value for name, entry in cache.settings().items()} == {
        "CMAKE_TOOLCHAIN_FILE": "/source/toolchain.cmake",
        "CMAKE_CXX_FLAGS": '-O3  -DX="a b"',
        "WITH_ZLIB": "ON",
        "ZLIB_LIBRARY": "/usr/lib/libz.so",
        "GIVEN": "by hand",
        "EMPTY": "",
        "BLANK": " x ",
        "FETCHCONTENT_SOURCE_DIR_GTEST": str(cache.folder / "_deps" / "gtest-src"),
        "FETCHCONTENT_SOURCE_DIR_ABSENT": "",
    }


def test_cmake_reads_what_is_written(tmp_path: Path) -> None:
    """CMake's cache gets values of any characters unchanged."""
    values = {"PLAIN": "x;y", "QUOTED": 'a "b" \\c ${d} $ENV{HOME}', "BRACKETS": "]=] ]==]", "odd.name": "@x@ #y"}
    script = "".join(initial_cache({name: Entry("STRING", value)}) for name, value in values.items())
    (tmp_path / "script.cmake").write_text(script)
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.14)\nproject(x NONE)\n")
    command = ["cmake", "-C", str(tmp_path / "script.cmake"), "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    subprocess.run(command, check=True, capture_output=True)
    read = CMakeCache.read(tmp_path / "build")
    assert {name: read.get(name) for name in values} == values


def test_the_default_type_of_a_multi_config_build(tmp_path: Path) -> None:
    lines = "CMAKE_HOME_DIRECTORY:INTERNAL=/s\nCMAKE_GENERATOR:INTERNAL=Ninja Multi-Config\n"
    (tmp_path / "CMakeCache.txt").write_text(lines + "CMAKE_CONFIGURATION_TYPES:STRING=Debug;Release\n")
    assert CMakeCache.read(tmp_path).build_type == "Debug"
    (tmp_path / "CMakeCache.txt").write_text(lines + "CMAKE_DEFAULT_BUILD_TYPE:STRING=Release\n")
    assert CMakeCache.read(tmp_path).build_type == "Release"


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such build folder"):
        CMakeCache.read(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"found no CMakeCache.txt in it; configure it first"):
        CMakeCache.read(tmp_path)
    (tmp_path / "CMakeCache.txt").write_text("CMAKE_GENERATOR:INTERNAL=Ninja\n")
    with pytest.raises(ConfigError, match="has no CMAKE_HOME_DIRECTORY; configure the build again"):
        CMakeCache.read(tmp_path)
