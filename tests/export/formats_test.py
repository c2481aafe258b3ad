"""Every format by the command, as a user starts it; and the model card, with the results of an evaluation."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt.collect.backends.development import check_representable
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.export.formats import export_policy, export_selectable
from compiler_opt.export.release_model import EMBEDDED_MODELS, write_aot
from compiler_opt.export.saved_model import save_policy
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import Binary, BinaryPolicy
from compiler_opt.spaces.native import native_blob
from tests import programs
from tests.importing.hostile_models import add_write_to_restore
from tests.native.cpp import build
from tests.real_observations import recurrent, weights_for

_ROOT = Path(__file__).parents[2]
_CARDS = {"MODEL_CARD.md", "model_card.json"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "policy"
    weights = weights_for({"callsite_cost": np.arange(90), "node_count": np.arange(90) % 50}, hidden=(8,))
    save_policy(path, weights, Binary(), "inlining_decision")
    return path


def _export(policy: Path, output: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    flags = (f"--policy_path={policy}", f"--output_dir={output}")
    return programs.run("compiler_opt/tools/export_policy.py", *flags, *arguments)


@pytest.mark.ci
def test_all_formats_at_once(policy: Path, tmp_path: Path) -> None:
    result = _export(policy, tmp_path / "out", "--format=native,cpp,release_model,tflite")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    files = {
        "network.mlgo": "native",
        "mlgo_policy_blob.cpp": "cpp",
        "policy_network.h": "cpp",
        "InlinerSizeModel.h": "release_model",
        "InlinerSizeModel.cpp": "release_model",
        "InlinerSizeModel.o": "release_model",
        "model.tflite": "tflite",
        "output_spec.json": "tflite",
    }
    assert [line.split(" (")[0] for line in result.stdout.splitlines()] == [
        f"{name}: {tmp_path / 'out' / file}" for file, name in files.items()
    ]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*files, *_CARDS}
    assert (tmp_path / "out" / "network.mlgo").read_bytes() == native_blob(NetworkWeights.load(policy))
    for name in ("model_card.json", "output_spec.json"):
        assert (tmp_path / "out" / name).read_bytes() == (policy / name).read_bytes()


@pytest.mark.ci
def test_what_needs_no_tensorflow_does_not_import_it(policy: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from compiler_opt.export.formats import export_policy;"
        f"export_policy(pathlib.Path({str(policy)!r}), pathlib.Path({str(tmp_path)!r}), ['native', 'release_model']);"
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=_ROOT, check=True)


@pytest.mark.ci
def test_the_program_in_the_documentation(policy: Path, tmp_path: Path) -> None:
    page = (_ROOT / "docs" / "deploy_forms.md").read_text()
    [program] = re.findall(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "decide.cpp").write_text(program)
    written = export_policy(policy, tmp_path, ["cpp"])["cpp"]
    sources = [tmp_path / "decide.cpp", *(path for path in written if path.suffix == ".cpp")]
    decide = build(sources, tmp_path / "decide", "g++", "-O2", f"-I{tmp_path}")
    zeros = {"callsite_cost": np.zeros(1, int), "node_count": np.zeros(1, int)}
    logits = BinaryPolicy(NetworkWeights.load(policy)).logits(zeros)[0]
    expected = "yes" if logits[1] > logits[0] else "no"
    assert subprocess.run([decide], capture_output=True, text=True, check=True).stdout == f"inline: {expected}\n"


@pytest.mark.slow
def test_aot(policy: Path, tmp_path: Path) -> None:
    result = _export(policy, tmp_path, "--format=aot")
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"InlinerSizeModel.h", "InlinerSizeModel.o", *_CARDS}
    header = (tmp_path / "InlinerSizeModel.h").read_text()
    for words in (
        "class InlinerSizeModel",
        "namespace llvm",
        "arg_feed_callsite_cost",
        "result_fetch_inlining_decision",
    ):
        assert words in header
    symbols = subprocess.run(
        ["nm", "--defined-only", str(tmp_path / "InlinerSizeModel.o")], capture_output=True, text=True, check=True
    )
    assert "InlinerSizeModel" in symbols.stdout


@pytest.mark.slow
def test_aot_keeps_to_its_time(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="not done after 0 s"):
        write_aot(policy, EMBEDDED_MODELS["inlining"], tmp_path, timeout_s=0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def hostile(policy: Path, tmp_path: Path) -> Path:
    """A policy whose SavedModel writes the file `written` when it is restored."""
    shutil.copytree(policy, tmp_path / "hostile")
    add_write_to_restore(tmp_path / "hostile", tmp_path / "written")
    return tmp_path / "hostile"


def test_a_saved_model_that_came_with_a_policy_is_not_passed_on(hostile: Path, tmp_path: Path) -> None:
    assert b"WriteFile" in (hostile / "saved_model.pb").read_bytes()
    export_policy(hostile, tmp_path / "out", ["saved_model"])
    assert b"WriteFile" not in (tmp_path / "out" / "saved_model.pb").read_bytes()


@pytest.mark.slow
def test_a_saved_model_that_came_with_a_policy_does_not_run(hostile: Path, tmp_path: Path) -> None:
    model = EMBEDDED_MODELS["inlining"]
    write_aot(hostile, model, tmp_path)
    assert (tmp_path / "written").read_text() == "written"
    (tmp_path / "written").unlink()
    export_policy(hostile, tmp_path / "out", ["aot"])
    assert (tmp_path / "out" / f"{model.class_name}.o").is_file()
    assert not (tmp_path / "written").exists()


@pytest.mark.ci
def test_a_saved_model_is_made_where_a_folder_has_none(policy: Path, tmp_path: Path) -> None:
    NetworkWeights.load(policy).save(tmp_path / "policy")
    with pytest.raises(PolicyError, match=r"expected saved_model\.pb in it, found none"):
        write_aot(tmp_path / "policy", EMBEDDED_MODELS["inlining"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    files = {"saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"}
    for folder in (policy, tmp_path / "policy"):
        written = export_policy(folder, tmp_path / "out", ["saved_model"])["saved_model"]
        assert {str(path.relative_to(tmp_path / "out")) for path in written} == files
        graph = (tmp_path / "out" / "saved_model.pb").read_bytes()
        assert all(name in graph for name in (b"action_callsite_cost", b"action_node_count"))


@pytest.mark.ci
def test_several_policies_in_one_class(policy: Path, tmp_path: Path) -> None:
    more = (f"--policy_path={policy}", "--name=small", "--name=fast")
    result = _export(policy, tmp_path / "out", "--format=release_model", *more)
    assert result.returncode == 0, result.stderr
    header = (tmp_path / "out" / "InlinerSizeModel.h").read_text()
    # MD5 of the names, as in `printf small | md5sum`.
    assert "kHasSelector = true" in header
    for name in ("small", "fast"):
        digest = hashlib.md5(name.encode()).hexdigest()
        low, high = (bytes.fromhex(half)[::-1].hex() for half in (digest[:16], digest[16:]))
        assert f'{{"{name}", 0x{high}u, 0x{low}u, ' in header
        assert ModelCard.load(tmp_path / "out" / name) is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format=native", "--name=small"], "--name: expected with --format=release_model alone"),
        (["--format=release_model", "--name=a", "--name=b"], "found 1 policies and 2 names"),
        (["--format=release_model,aot"], "release_model and aot write files of the same names"),
    ],
)
def test_formats_that_do_not_fit(policy: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    result = _export(policy, tmp_path / "out", *arguments)
    assert result.returncode == 2 and words in result.stderr
    assert "Traceback" not in result.stderr


def test_policies_for_different_problems_are_refused(policy: Path, tmp_path: Path) -> None:
    weights = NetworkWeights.load(policy)
    object.__setattr__(weights, "metadata", {"problem": "regalloc_priority"})
    weights.save(tmp_path / "policy")
    with pytest.raises(PolicyError, match="expected policies for one problem, found some for inlining and regalloc_pr"):
        export_selectable({"a": policy, "b": tmp_path / "policy"}, tmp_path / "out")


def test_a_policy_of_another_problem_is_refused(policy: Path, tmp_path: Path) -> None:
    weights = NetworkWeights.load(policy)
    object.__setattr__(weights, "metadata", {"problem": "chess"})
    weights.save(tmp_path / "policy")
    with pytest.raises(PolicyError, match="for the problem 'chess'; expected one of inlining"):
        export_policy(tmp_path / "policy", tmp_path / "out", ["native"])


def test_a_margin_without_the_features_of_the_default_is_for_our_own_forms(policy: Path, tmp_path: Path) -> None:
    weights = NetworkWeights.load(policy)
    save_policy(tmp_path / "policy", weights.with_margin(0.5), Binary(), "inlining_decision")
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {"network.npz", "network.mlgo", *_CARDS}
    for form in ("release_model", "saved_model", "tflite", "aot"):
        with pytest.raises(
            PolicyError,
            match=f"has the margin 0.5, but does not observe cost_.*from which the format {form} .*--margin=0",
        ):
            export_policy(tmp_path / "policy", tmp_path / "out", [form])
    written = export_policy(tmp_path / "policy", tmp_path / "out", ["native", "tflite"], margin=0.0)
    assert written["native"][0].read_bytes() == native_blob(weights)
    assert (tmp_path / "out" / "model.tflite").read_bytes() == (policy / "model.tflite").read_bytes()
    marked = BinaryPolicy(weights.with_margin(0.5))
    with pytest.raises(PolicyError, match=r"has the margin 0\.5, but a TFLite model cannot rebuild .*--margin=0"):
        check_representable(marked)
    with pytest.raises(PolicyError, match="margin: expected a finite number"):
        export_policy(policy, tmp_path / "out", ["native"], margin=float("inf"))


def _summary(checksum: object) -> dict[str, Any]:
    facts: dict[str, Any] = {"Corpus": "held_out: re2", "Compiler": "clang 22", "Optimisation": "-Oz (9 modules)"}
    if checksum is not None:
        facts["Policy: checksum"] = checksum
    objects = {"total": {"value": -0.047}, "wins": 5, "losses": 1, "ties": 3}
    return {
        "policy": "policy",
        "provenance": facts,
        "num_modules": 9,
        "started_at": "2026-01-01 00:00+00:00",
        "totals": {
            "policy": {
                "linked_change": -0.0285,
                "linked": {"mean": {"value": -0.011}},
                "objects": objects,
                "num_failures": 0,
            }
        },
        "projects": [
            {"project": "re2", "policies": {"policy": {"linked_change": -0.0285}}},
            {"project": "unlinked", "policies": {"policy": {"linked_change": None}}},
        ],
    }


def test_the_card_has_what_an_evaluation_measured(policy: Path, tmp_path: Path) -> None:
    summary = _summary(NetworkWeights.load(policy).checksum())
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    export_policy(policy, tmp_path / "out", ["native"], evaluation=tmp_path)
    card = ModelCard.load(tmp_path / "out")
    assert card is not None
    [result] = card.results
    assert result["linked text against the default"] == "-2.85%"
    assert result["linked text by project"] == "re2 -2.85%"
    assert result["objects smaller, bigger, the same"] == "5, 1, 3"
    assert "- corpus: held_out: re2" in (tmp_path / "out" / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory; give --evaluation the folder"),
        ("{", "not an evaluation of one policy"),
        ("[]", "not an evaluation of one policy"),
        (json.dumps({"policy": "policy"}), "not an evaluation of one policy"),
        ("[" * 100_000, "not an evaluation of one policy .*nested deeper than 64 levels"),
        (json.dumps({**_summary(None), "totals": {"policy": {"linked_change": 10**400}}}), "more than 128 bits"),
        (json.dumps(_summary(["a"])), "measures other weights"),
        (json.dumps(_summary("0" * 64)), r"measures other weights \(checksum 000000000000,"),
        (json.dumps(_summary(None)), r"measures other weights \(checksum not recorded"),
    ],
)
def test_an_evaluation_of_something_else_is_refused(
    policy: Path, tmp_path: Path, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ConfigError, match=words):
        export_policy(policy, tmp_path / "out", ["native"], evaluation=tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["release_model", "saved_model", "tflite", "aot"])
def test_llvms_own_forms_of_a_recurrent_policy_are_refused(form: str, policy: Path, tmp_path: Path) -> None:
    weights = recurrent(NetworkWeights.load(policy), 2)
    weights.save(tmp_path / "recurrent")
    with pytest.raises(PolicyError, match=f"LLVM does not tell a model in the format {form} where a module begins"):
        export_policy(tmp_path / "recurrent", tmp_path / "out", [form])
    [path] = export_policy(tmp_path / "recurrent", tmp_path / "out", ["native"])["native"]
    assert path.read_bytes() == native_blob(weights)


def test_a_recurrent_policy_is_not_converted_for_the_development_mode(policy: Path) -> None:
    recurring = BinaryPolicy(recurrent(NetworkWeights.load(policy), 2))
    with pytest.raises(PolicyError, match="LLVM does not tell a TFLite model where a module begins"):
        check_representable(recurring)
