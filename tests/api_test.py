"""The public API: the code of `docs/api.md` runs, and the import is cheap."""

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import compiler_opt
from tests.programs import ROOT, run
from tests.small_corpus import make_small_corpus

PAGE = (ROOT / "docs" / "api.md").read_text()


def test_the_code_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    clang = shutil.which("clang-22")
    assert clang is not None
    make_small_corpus(tmp_path / "corpus", clang)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    rollout, policy, training = blocks
    assert len(rollout.strip().splitlines()) <= 12
    assert len(training.strip().splitlines()) <= 20
    # The page's code, except that training is shorter.
    shorter = training.replace(
        ".with_seed(1)",
        ".with_seed(1)\n"
        "short = dataclasses.replace(settings.training, num_iterations=1, num_modules=2, rollouts_per_module=2)\n"
        "cloning = dataclasses.replace(settings.cloning, num_epochs=2, batch_size=8)\n"
        "settings = dataclasses.replace(settings, training=short, cloning=cloning)",
    )
    # As a script: workers import it, and find the class of the policy.
    definition, jobs = policy.split("\n\n\n")
    guarded = "\n".join(f"    {line}" for line in (rollout + jobs + shorter).splitlines())
    (tmp_path / "program.py").write_text(
        f"import dataclasses\nimport compiler_opt\n{definition}\nif __name__ == '__main__':\n{guarded}\n"
    )
    result = run(str(tmp_path / "program.py"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "decisions" in result.stdout
    assert re.search(r"^\S+ \d+$", result.stdout, re.MULTILINE), "the policy of one's own has decided"
    assert "linked text: " in result.stdout
    assert (tmp_path / "run" / "training" / "policy" / "saved_model.pb").is_file()


def test_every_name_exists_and_is_documented() -> None:
    names = [name for name in dir(compiler_opt) if not name.startswith("_") and name not in ("Any", "TYPE_CHECKING")]
    public = [name for name in names if not isinstance(getattr(compiler_opt, name), types.ModuleType)]
    assert len(public) >= 12
    for name in public:
        assert getattr(compiler_opt, name).__name__
        assert f"`{name}`" in PAGE, name


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'unheard_of'"):
        compiler_opt.unheard_of  # noqa: B018


def test_the_import_is_cheap() -> None:
    code = "import compiler_opt, sys; sys.exit(any(name in sys.modules for name in ('numpy', 'tensorflow', 'absl')))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
