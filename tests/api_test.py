"""The public API: the code of `docs/api.md` runs, and the import is cheap."""

import collections.abc
import dataclasses
import inspect
import os
import re
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import compiler_opt
from compiler_opt import env, pretrained
from compiler_opt.decisions.inlining import PROBLEM as INLINING
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import VocabularyConfig
from tests.probed import probed
from tests.programs import ROOT, run
from tests.small_corpus import make_small_corpus

PAGE = (ROOT / "docs" / "api.md").read_text()
REFERENCE = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))


@pytest.mark.slow
def test_the_code_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    clang = shutil.which("clang-22")
    assert clang is not None
    make_small_corpus(tmp_path / "corpus", clang)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    rollout, policy, training = blocks
    assert len(rollout.strip().splitlines()) <= 12
    assert len(training.strip().splitlines()) <= 20
    # As a script: workers import it, and find the class of the policy.
    definition, jobs = policy.split("\n\n\n")
    guarded = "\n".join(f"    {line}" for line in (rollout + jobs + training).splitlines())
    (tmp_path / "program.py").write_text(f"import compiler_opt\n{definition}\nif __name__ == '__main__':\n{guarded}\n")
    result = run(str(tmp_path / "program.py"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "decisions" in result.stdout
    assert re.search(r"^\S+ \d+$", result.stdout, re.MULTILINE), "the policy of one's own has decided"
    assert "linked text: " in result.stdout
    policy_dir = tmp_path / "run" / "training" / "policy"
    assert (policy_dir / "saved_model.pb").is_file()
    assert NetworkWeights.load(policy_dir).metadata["iterations"] == 5


def test_every_name_exists_and_is_documented() -> None:
    names = [name for name in dir(compiler_opt) if not name.startswith("_") and name not in ("Any", "TYPE_CHECKING")]
    public = [name for name in names if not isinstance(getattr(compiler_opt, name), types.ModuleType)]
    assert len(public) >= 12
    for name in public:
        assert getattr(compiler_opt, name).__name__
        assert f"`{name}`" in PAGE, name
        assert f"\n::: compiler_opt.{name}\n" in REFERENCE, f"docs/reference/ lacks {name}"


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'unheard_of'"):
        compiler_opt.unheard_of  # noqa: B018


def test_the_import_is_cheap() -> None:
    code = "import compiler_opt, sys; sys.exit(any(name in sys.modules for name in ('numpy', 'tensorflow', 'absl')))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


_MADE_BY = {"Corpus": "load", "Toolchain": "probe"}
"""Classes that users do not construct, and what makes them."""


def _paths() -> dict[str, Any]:
    """Annotations with `Path` of the parameters of all public functions, by `FUNCTION.PARAMETER`."""
    public = [getattr(compiler_opt, name) for names in compiler_opt._NAMES.values() for name in names]
    public += [value for value in vars(pretrained).values() if getattr(value, "__module__", "") == pretrained.__name__]
    found = {}
    for value in (*public, env.compiler_env, env.CompilerEnv, env.EnvSettings):
        functions = {} if value.__name__ in _MADE_BY else {value.__name__: value}
        if isinstance(value, type):
            methods = inspect.getmembers(value, callable)
            functions |= {f"{value.__name__}.{name}": method for name, method in methods if name[0] != "_"}
        for name, function in functions.items():
            for parameter in inspect.signature(function).parameters.values():
                if "Path" in str(parameter.annotation):
                    found[f"{name}.{parameter.name}"] = parameter.annotation
    return found


def _is_path_only(annotation: Any) -> bool:
    """Whether some alternative is a path, or a sequence of paths, and none is the same of strings."""
    if typing.get_origin(annotation) is collections.abc.Callable:
        return False  # Called with a path of ours.
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    alternatives = typing.get_args(annotation) if is_union else (annotation,)
    elements = [element for alternative in alternatives for element in typing.get_args(alternative)]
    return (Path in alternatives and str not in alternatives) or any(map(_is_path_only, elements))


def test_paths_may_be_strings() -> None:
    paths = _paths()
    assert {"load_policy.directory", "rollout.keep_object", "compiler_env.vocab_path", "Corpus.load.path"} <= set(paths)
    assert [name for name, annotation in paths.items() if _is_path_only(annotation)] == []
    assert _is_path_only(Path | None) and _is_path_only(str | Sequence[Path])


@pytest.mark.ci
def test_loading_by_strings(tmp_path: Path) -> None:
    name = pretrained.names("inlining")[0]
    forms: list[Path | str] = [f"pretrained:{name}", str(pretrained.path(name)), pretrained.path(name)]
    for given in forms:
        for learned in (compiler_opt.load_policy(given), INLINING.decision.load_policy(given)):
            assert learned.weights.checksum() == pretrained.load(name).checksum()
    settings = compiler_opt.PipelineSettings().starting_from(f"pretrained:{name}")
    assert settings.training.warmstart_policy_dir == f"pretrained:{name}"

    toolchain, corpus = probed("clang-22"), make_small_corpus(tmp_path, "clang-22")
    folder = str(tmp_path)
    policy = compiler_opt.DefaultPolicy(INLINING)
    loaded = compiler_opt.Corpus.load(folder, cache_dir=f"{folder}/cache")
    with compiler_opt.WorkerPool(toolchain, INLINING, 1) as pool:
        job = compiler_opt.Job(corpus.modules[0], policy, keep_object=f"{folder}/one.o")
        [(_, in_pool)] = pool.rollouts([job])
        compiler_opt.record_default_trace(corpus, INLINING, toolchain, pool, f"{folder}/trace.tfrecord")
    result = compiler_opt.rollout(
        loaded.modules[0], policy, INLINING, toolchain, scratch=folder, keep_object=f"{folder}/two.o"
    )
    assert in_pool.failure is result.failure is None
    assert (tmp_path / "one.o").read_bytes() == (tmp_path / "two.o").read_bytes()

    config = VocabularyConfig(num_quantiles=4)
    quantiles = compiler_opt.make_vocabulary(f"{folder}/trace.tfrecord", f"{folder}/vocabulary", config)
    environment = env.compiler_env(folder, clang_path="clang-22", vocab_path=f"{folder}/vocabulary", num_workers=1)
    assert environment.observation_space.shape == (3 * len(quantiles),)


def test_what_is_shown_is_one_short_line(tmp_path: Path) -> None:
    toolchain, corpus = probed("clang-22"), make_small_corpus(tmp_path, "clang-22")
    policy, module = compiler_opt.load_policy(f"pretrained:{pretrained.names('inlining')[0]}"), corpus.modules[0]
    result = compiler_opt.rollout(module, policy, INLINING, toolchain)
    failed = dataclasses.replace(result, failure=200 * "x", trajectory=None)
    trajectory = result.trajectory
    assert trajectory is not None
    count = len(trajectory)
    assert repr(result) == f"Rollout({module.name!r}, policy='policy', {count} decisions, {result.cpu_s:.2f} CPU s)"
    assert repr(trajectory) == f"Trajectory({count} decisions, {len(trajectory.header.features)} features)"
    assert repr(policy) == "BinaryPolicy('policy')"
    assert repr(compiler_opt.DefaultPolicy(INLINING)) == "DefaultPolicy('default')"
    assert repr(corpus) == f"Corpus({str(tmp_path)!r}, 4 modules)"
    for shown in (failed, policy.weights):
        assert len(repr(shown)) < 200 and repr(shown).isprintable()
