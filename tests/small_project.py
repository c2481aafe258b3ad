"""A small CMake project, made on the spot: a static library, a program that uses it, and a test."""

import subprocess
from pathlib import Path

_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(shapes LANGUAGES C CXX)
enable_testing()
add_compile_options(-O1)
add_library(shapes STATIC area.cpp edge.cpp list.c)
target_include_directories(shapes PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
add_executable(draw draw.cpp)
target_link_libraries(draw shapes)
target_precompile_headers(draw PRIVATE <vector>)
add_executable(shapes_test test.cpp)
target_link_libraries(shapes_test shapes)
add_test(NAME shapes COMMAND shapes_test)
add_executable(unbuilt EXCLUDE_FROM_ALL draw.cpp)
install(TARGETS shapes DESTINATION lib)
"""
_HEADER = """
#pragma once
#include <string>
#include <vector>
extern "C" int length(const char *text);
int area(const std::vector<int> &sides);
std::string edge(const std::vector<int> &sides);
template <class T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
template <class T> T sum(const std::vector<T> &items) {
  T t = 0;
  for (const T &item : items) t += clamp(item, T(1), T(9));
  return t;
}
"""
_SOURCES = {
    "CMakeLists.txt": _CMAKE,
    "shapes.h": _HEADER,
    "area.cpp": """
#include "shapes.h"
int area(const std::vector<int> &sides) { return sum(sides) * sum(sides) + clamp(sum(sides), 2, 5); }
""",
    "edge.cpp": """
#include "shapes.h"
std::string edge(const std::vector<int> &sides) {
  std::string text;
  for (int side : sides) text += std::to_string(clamp(side, 0, sum(sides))) + "-" + std::to_string(sum(sides));
  return text;
}
""",
    "list.c": """
static int step(const char *t) { return *t ? 1 : 0; }
int length(const char *text) { int n = 0; while (step(text + n)) n++; return n; }
int twice(const char *text) { return length(text) + length(text + step(text)); }
""",
    "draw.cpp": """
#include "shapes.h"
int main(int argc, char **argv) {
  std::vector<int> sides;
  for (int i = 1; i < argc; i++) sides.push_back(length(argv[i]));
  return area(sides) + (int)edge(sides).size() > 1000;
}
""",
    "test.cpp": """
#include "shapes.h"
int main() { return !(area({1, 2}) == 12 && edge({3}) == "3-3" && length("abc") == 3); }
""",
}


def make_small_project(root: Path) -> Path:
    """Writes the sources; returns their folder."""
    for name, text in _SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def configure(source: Path, build: Path, *options: str) -> Path:
    """A build folder, as a user would have it; compiled with the system's C++ compiler."""
    command = ["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", *options]
    subprocess.run(command, check=True, capture_output=True)
    return build
