"""Targets that only tests need, groups of linked targets, and objects to train on."""

from pathlib import Path

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.optimize.program import (
    Kind,
    Source,
    Target,
    link_groups,
    source_key,
    targets_of_tests,
    training_objects,
)


def library(name: str, *uses: str, installed: bool = False, project: str = "") -> Target:
    return Target(name, Kind.STATIC, f"lib{name}.a", uses, installed, project)


def program(name: str, *uses: str) -> Target:
    return Target(name, Kind.EXECUTABLE, name, uses)


TARGETS = (
    library("yaml", installed=True),
    library("gtest", project="gtest", installed=True),
    library("gtest_main", "gtest", project="gtest", installed=True),
    library("gmock", "gtest", project="mocks"),
    library("helper"),
    program("tool", "yaml"),
    program("yaml_test", "yaml", "gmock", "gtest", "helper"),
)


def test_targets_that_only_tests_need() -> None:
    assert targets_of_tests(TARGETS, {"yaml_test"}) == {"yaml_test", "gtest", "gtest_main", "gmock", "helper"}
    assert targets_of_tests(TARGETS[:1] + TARGETS[4:], set()) == set()
    # An installed program is for users, though a test runs it; then nothing that it uses is only for tests.
    draw = Target("draw", Kind.EXECUTABLE, "draw", ("canvas",), installed=True)
    targets = (draw, library("canvas"), program("check", "canvas"))
    assert targets_of_tests(targets, {"draw", "check"}) == {"check"}
    # Nothing says that the library is wanted, but nothing says that it is a helper either.
    assert targets_of_tests([library("only"), program("only_test", "only")], {"only_test"}) == {"only_test"}
    # There is nothing but tests: then they are the program.
    assert targets_of_tests([program("a_test")], {"a_test"}) == set()


def test_groups_of_linked_targets() -> None:
    targets = (
        library("base"),
        Target("objects", Kind.OBJECTS, ""),
        Target("one", Kind.SHARED, "libone.so", ("base", "objects")),
        Target("two", Kind.SHARED, "libtwo.so", ("one",)),
        program("app", "two", "one"),
    )
    assert link_groups(targets) == {"base": "one", "objects": "one", "one": "one", "two": "two", "app": "app"}
    both = (library("base"), program("a", "base"), program("b", "base"))
    assert len(set(link_groups(both).values())) == 1


def test_each_source_is_trained_on_once() -> None:
    def source(name: str, target: str, *key: str) -> Source:
        return Source(ObjectFile(Path("/build", name), name), target, key)

    sources = [
        source("a.o", "yaml", "a.cpp"),
        source("shared/a.o", "yaml", "a.cpp"),
        source("a2.o", "yaml", "a.cpp", "WIDE"),
        source("gtest.o", "gtest", "gtest.cpp"),
        source("tool.o", "tool", "tool.cpp"),
        source("x.o", "", "x.cpp"),
    ]
    objects = training_objects(sources, TARGETS, frozenset({"gtest", "gtest_main", "gmock", "yaml_test", "helper"}))
    assert [item.name for item in objects] == ["tool/a.o", "tool/a2.o", "tool/tool.o", "program/x.o"]


def test_macros_distinguish_objects_of_a_source() -> None:
    assert source_key(["cc", "-DB", "-D", "A=1", "-Dx_EXPORTS", "-fPIC"], "a.c") == ("a.c", "A=1", "B")
