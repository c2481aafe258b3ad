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
target_precompile_headers(draw PRIVATE <stddef.h>)
add_executable(shapes_test test.cpp)
target_link_libraries(shapes_test shapes)
add_test(NAME shapes COMMAND shapes_test)
add_executable(unbuilt EXCLUDE_FROM_ALL draw.cpp)
install(TARGETS shapes DESTINATION lib)
"""
_HEADER = """
#pragma once
struct Sides {
  const int *items;
  int number;
};
extern "C" int length(const char *text);
int area(Sides sides);
int edge(Sides sides);
template <class T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
template <class T> T sum(const T *items, int number) {
  T t = 0;
  for (int i = 0; i < number; i++) t += clamp(items[i], T(1), T(9));
  return t;
}
inline int sum(Sides sides) { return sum(sides.items, sides.number); }
template <class T> __attribute__((noinline)) T often(T x) { return clamp(x, T(2), T(5)); }
"""
_SOURCES = {
    "CMakeLists.txt": _CMAKE,
    "shapes.h": _HEADER,
    "area.cpp": """
#include "shapes.h"
int area(Sides sides) { return sum(sides) * sum(sides) + often(sum(sides)); }
""",
    "edge.cpp": """
#include "shapes.h"
int edge(Sides sides) {
  int text = 0;
  for (int i = 0; i < sides.number; i++) text = 100 * text + 10 * clamp(sides.items[i], 0, sum(sides)) + sum(sides);
  return text + often(text) - often(text);
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
  int lengths[16], number = 0;
  for (; number < argc && number < 16; number++) lengths[number] = length(argv[number]);
  return area({lengths, number}) + edge({lengths, number}) > 1000;
}
""",
    "test.cpp": """
#include "shapes.h"
int main() {
  int one[] = {1, 2}, other[] = {3};
  return !(area({one, 2}) == 12 && edge({other, 1}) == 33 && length("abc") == 3);
}
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
