import pytest

from compiler_opt.tools.printing import echo, first_of


def test_what_cannot_be_printed_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    echo("caf\udce9.o: 1\n\ttwo é")
    assert capsys.readouterr().out == "caf\\udce9.o: 1\n\\ttwo é\n"


def test_the_first_reasons_are_named_and_the_others_counted() -> None:
    assert first_of("left out", []) == []
    assert first_of("left out", ["a:\n no  object", "b"], 2) == ["left out: a: no object", "left out: b"]
    assert first_of("left out", ["a", "b", "c"], 1, remedy="; see x") == ["left out: a", "left out: 2 more; see x"]
