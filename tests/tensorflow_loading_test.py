"""Ctrl-C while TensorFlow is being imported takes effect after it, and so does the collection of garbage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_INTERRUPTED_IMPORT = """
import gc, os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
signal.setitimer(signal.ITIMER_REAL, 0.4, 0.05)
from compiler_opt.tensorflow_loading import load_tensorflow
try:
    load_tensorflow()
except KeyboardInterrupt:
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("tensorflow" in sys.modules, "tf_agents.agents.ppo.ppo_clip_agent" in sys.modules)
    print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.ci
def test_interrupts_during_the_import_take_effect_after_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 4), done.stderr
