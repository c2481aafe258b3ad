"""`compiler_opt VERB`: the table of verbs is complete, help fits a screen, mistakes are answered, shells complete."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt import __version__
from compiler_opt.__main__ import main
from compiler_opt.commands import VERBS, summary

ROOT = Path(__file__).parents[1]
PROGRAM = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m compiler_opt "$@"\n'


def compiler_opt(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "compiler_opt", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def is_command(path: Path) -> bool:
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return any(
        function.name == "entry" and "entry_point.command" in map(ast.unparse, function.decorator_list)
        for function in functions
    )


def test_every_command_is_a_verb() -> None:
    tools = ROOT / "compiler_opt" / "tools"
    commands = [path.relative_to(tools).with_suffix("") for path in tools.rglob("*.py") if is_command(path)]
    assert sorted(VERBS) == sorted(" ".join(path.parts) for path in commands)
    assert all(summary(verb).endswith(".") for verb in VERBS)


ABOUT = {
    "output_dir": {"output", "out", "outdir", "root", "dest", "destination"},
    "policy_path": {"policy", "policies"},
    "num_workers": {"workers", "worker", "jobs", "threads", "processes", "parallelism", "cpus"},
    "minutes": {"minutes", "hours", "days"},
    "clang_path": {"clang", "compiler"},
    "data_path": {"corpus", "corpora", "data"},
}
"""The one spelling of a flag, and words in names of flags that are about the same."""

OTHER_SPELLINGS = {
    "root_dir": "google/ml-compiler-opt's --output_dir",
    "output_path": "google/ml-compiler-opt's, a file",
    "output_performance_path": "google/ml-compiler-opt's, a file",
    "warmstart_policy_dir": "google/ml-compiler-opt's name in gin",
    "other_policy_path": "the second one of two",
    "reuse_policy": "may be the folder of an optimisation",
    "record_policy": "a switch",
    "num_threads": "of TensorFlow in one process",
    "worker_manager": "of what kind they are",
    "search_minutes": "a part of --minutes",
    "verdict_minutes": "of another step than --minutes",
    "max_hours": "the earlier --minutes of compare_trainers",
    "pin_clang": "a switch",
    "relative_clang": "a switch",
    "trust_corpus": "a switch",
}


def defined_flags() -> Iterator[str]:
    """The names of all flags of all commands."""
    for path in (ROOT / "compiler_opt" / "tools").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.match(r"flags\.DEFINE|shared_flags\.|path$", ast.unparse(node.func)):
                # A parser may come first.
                names = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
                yield from [name for name in names[:1] if isinstance(name, str) and name.isidentifier()]


def test_flags_for_the_same_have_the_same_name() -> None:
    names = set(defined_flags())
    assert ABOUT.keys() <= names
    others = {name for name in names for ours, words in ABOUT.items() if name != ours and words & set(name.split("_"))}
    assert others == OTHER_SPELLINGS.keys()


def test_help_is_one_screen() -> None:
    result = compiler_opt()
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) < 80
    words = result.stdout.replace("|", " ").split()
    assert all(word in words for verb in VERBS for word in verb.split())
    assert compiler_opt("--help").stdout == result.stdout


def test_help_imports_no_command() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--list']; from compiler_opt.__main__ import main; main();"
        "print({'absl', 'numpy', 'compiler_opt.tools'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    *verbs, imported = result.stdout.splitlines()
    assert imported == "set()"
    assert [tuple(re.split(" {2,}", line)) for line in verbs] == [(verb, summary(verb)) for verb in VERBS]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("evalute", "did you mean evaluate? See compiler_opt --help"),
        ("extract-ir --input=x", "did you mean extract_ir? See compiler_opt --help"),
        ("make", "did you mean make_corpus? See compiler_opt --help"),
        ("--data_path=x evaluate", "see compiler_opt --help"),
        ("--flags make", "see compiler_opt --help"),
        ("collect_blocks --name=x", "did you mean cost_model blocks? See compiler_opt --help"),
        (
            "policy averag --x",
            "did you mean policy average or policy margin or policy release? See compiler_opt --help",
        ),
    ],
)
def test_no_such_verb(
    words: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compiler_opt", *words.split()])
    assert main() == 2
    assert capsys.readouterr() == ("", f"error: expected a verb, found {words.split()[0]!r}; {answer}\n")


@pytest.mark.ci
def test_a_verb_has_its_own_flags_and_mistakes() -> None:
    helped = compiler_opt("doctor", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(summary("doctor")) and "compiler_opt doctor:\n  --clang_path:" in helped.stdout
    mistaken = compiler_opt("doctor", "--clang_paht=x")
    assert (mistaken.returncode, mistaken.stdout) == (2, "")
    assert mistaken.stderr.startswith("error: Unknown command line flag 'clang_paht'. Did you mean: clang_path")


def test_a_group_lists_its_verbs() -> None:
    listed = compiler_opt("policy")
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [
        ["policy", word] for word in ("average", "combine", "margin", "release")
    ]
    assert compiler_opt("policy", "--help").stdout == listed.stdout
    assert "compiler_opt policy average:\n  --output_dir:" in compiler_opt("policy", "average", "--help").stdout


def test_the_version() -> None:
    assert compiler_opt("--version").stdout == f"compiler_opt {__version__}\n"


def test_nobody_reads() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as unread:
        command = [sys.executable, "-m", "compiler_opt"]
        result = subprocess.run(command, cwd=ROOT, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr) == (-13, b"")


@pytest.fixture(name="path")
def path_fixture(tmp_path: Path) -> str:
    """A PATH with a program `compiler_opt`."""
    (tmp_path / "compiler_opt").write_text(PROGRAM)
    (tmp_path / "compiler_opt").chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.ci
def test_bash_completes(path: str) -> None:
    script = """
    source <(compiler_opt --completion=bash)
    complete -p compiler_opt
    for line in evaluat pol "policy m" "policy margin --dry" "doctor --cl" "make_corpus --noc" \
      "make_corpus --input_dir = x" "nothing --x"; do
      COMP_WORDS=(compiler_opt $line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
      _compiler_opt compiler_opt 2>/dev/null
      echo "${COMPREPLY[@]}"
    done
    """
    printed = subprocess.run(["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert printed.stderr == ""
    assert printed.stdout.splitlines() == [
        "complete -o default -F _compiler_opt compiler_opt",
        "evaluate",
        "policy",
        "margin",
        "--dry_run",
        "--clang_path=",
        "--nocheck",
        "",
        "",
    ]


@pytest.mark.ci
def test_zsh_completes(path: str) -> None:
    """What it would offer, printed in place of zsh's own functions, which need a terminal."""
    script = """
    compdef() { echo compdef $@ }
    _describe() { print -r -- ${${(P)2}[1]} }
    compadd() { echo compadd $@ }
    source <(compiler_opt --completion=zsh)
    words=(compiler_opt "") CURRENT=2 PREFIX=
    _compiler_opt
    words=(compiler_opt policy "") CURRENT=3 PREFIX=
    _compiler_opt
    words=(compiler_opt make_corpus --) CURRENT=3 PREFIX=--
    _compiler_opt
    words=(compiler_opt policy margin --) CURRENT=4 PREFIX=--
    _compiler_opt
    """
    printed = subprocess.run(
        ["zsh", "-f", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert printed.stderr == ""
    compdef, first, group, values, switches, values_of_margin, switches_of_margin = printed.stdout.splitlines()
    assert compdef == "compdef _compiler_opt compiler_opt" and first == f"{VERBS[0]}:{summary(VERBS[0])}"
    assert group == f"average:{summary('policy average')}"
    assert "--margins= " in values_of_margin and "--dry_run" in switches_of_margin
    assert values.startswith("compadd -S -- --default_args= ") and "--check --nocheck " in f"{switches} "
