"""Processes start from programs without a main guard: scripts, stdin, `-c` and interactive sessions."""

import multiprocessing
import os
import re
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.python_process import start_process
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.policies.policy import FunctionDecider, Policy
from tests.programs import ROOT
from tests.small_corpus import make_small_corpus

_START = """
import multiprocessing
from compiler_opt.collect.python_process import start_process
from tests.collect.python_process_test import send

class Own:
    value = 3

ours, theirs = multiprocessing.Pipe()
print("begun")
start_process(send, theirs, WHAT)
print("received", ours.recv())
"""
_POOL = """
import compiler_opt
from compiler_opt.env import compiler_env
problem, corpus = compiler_opt.load_problem("inlining"), compiler_opt.Corpus.load("CORPUS")
jobs = [compiler_opt.Job(module, compiler_opt.DefaultPolicy(problem)) for module in corpus.modules]
with compiler_opt.WorkerPool(compiler_opt.probe("clang-22"), problem, num_workers=2) as pool:
    print(sorted(result.failure or len(result.trajectory or ()) for _, result in pool.rollouts(jobs)))

env = compiler_env("CORPUS", clang_path="clang-22", num_workers=1)
print(env.reset(seed=0)[1]["module"] in corpus.by_name)
env.close()
"""


def send(connection: Connection, received: object) -> None:
    """Runs in the process."""
    connection.send(getattr(received, "value", received))


def _run(program: str, how: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    script = folder / "program.py"
    script.write_text(program)
    arguments = {"script": [str(script)], "stdin": ["-"], "-c": ["-c", program], "interactive": ["-i"]}[how]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], input=program, env=environment, cwd=folder, capture_output=True, text=True
    )


_EACH_WAY = pytest.mark.parametrize(
    "how", ["script", "stdin", *(pytest.param(how, marks=pytest.mark.slow) for how in ("-c", "interactive"))]
)


@pytest.mark.ci
@_EACH_WAY
def test_a_program_without_a_guard(how: str, tmp_path: Path) -> None:
    result = _run(_START.replace("WHAT", "7"), how, tmp_path)
    # Interactive sessions print prompts, too.
    assert re.findall(r"begun|received .*", result.stdout) == ["begun", "received 7"]
    assert "Traceback" not in result.stderr


@pytest.mark.ci
@_EACH_WAY
def test_a_class_of_a_program_without_a_guard(how: str, tmp_path: Path) -> None:
    result = _run(_START.replace("WHAT", "Own()"), how, tmp_path)
    [answer] = re.findall(r"received .*", result.stdout)
    assert "Own" in answer
    assert "define it in a module that workers find or, in a script that has everything but definitions below" in answer
    assert "Traceback" not in result.stderr


def test_a_class_of_a_program_with_a_guard(tmp_path: Path) -> None:
    definitions, rest = _START.replace("WHAT", "Own()").split("\n\nours")
    program = f"{definitions}\n\nif __name__ == '__main__':\n    ours" + rest.replace("\n", "\n    ")
    assert _run(program, "script", tmp_path).stdout.splitlines() == ["begun", "received 3"]


@pytest.mark.slow
def test_the_pool_and_an_environment_from_stdin(tmp_path: Path) -> None:
    corpus = make_small_corpus(tmp_path, "clang-22")
    result = _run(_POOL.replace("CORPUS", str(corpus.root)), "stdin", tmp_path)
    assert result.stdout.splitlines() == ["[0, 5, 5, 6]", "True"], result.stderr


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    class Local(Policy):
        name = "local"

        def start(self, header: object, seed: int) -> FunctionDecider:
            raise NotImplementedError

    message = "sent to workers: .*Local.*; define classes and functions at the top level"
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, pytest.raises(ConfigError, match=message):
        start_process(send, theirs, Local())
    with pytest.raises(PolicyError, match=message):
        PolicyFolder(tmp_path).dumps(Local(), lambda policy: None)
