"""The plugin's features from the command line, at smoke size: trace, cloning, training, evaluation, forms."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import PolicyError
from compiler_opt.export.formats import export_policy
from compiler_opt.llvm import plugin_features
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.config import VocabularyConfig
from compiler_opt.rl.quantiles import trace_quantiles
from compiler_opt.rl.trace_files import Trace
from tests import programs
from tests.small_corpus import make_small_corpus

_GIN = "gin_configs/inlining"
_SET = f"--gin_files={_GIN}/plugin_features.gin"
_TRAIN = (
    f"--gin_files={_GIN}/ppo_nn_agent.gin",
    "--gin_bindings=train_eval.num_iterations=1",
    "--gin_bindings=train_eval.num_modules=3",
    "--gin_bindings=train_eval.rollouts_per_module=3",
    "--num_workers=1",
)


def run(program: str, *arguments: str, status: int = 0) -> str:
    """Standard output, or the error of a run that is expected to fail."""
    result = programs.run(f"compiler_opt/{program}.py", *arguments)
    assert result.returncode == status, result.stderr
    if not status:
        return result.stdout
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
    return line


@pytest.fixture(scope="module")
def place(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of corpus, trace and vocabulary."""
    place = tmp_path_factory.mktemp("plugin_features")
    (place / "corpus").mkdir()
    make_small_corpus(place / "corpus", clang_path)
    arguments = (f"--clang_path={clang_path}", f"--data_path={place / 'corpus'}", f"--output_path={place / 'trace'}")
    run("tools/generate_default_trace", *arguments, "--num_workers=1", _SET)
    # As generate_vocab does, without waiting for TensorFlow once more.
    config = VocabularyConfig(num_quantiles=16)
    quantiles = trace_quantiles(Trace(place / "trace"), problems.load("inlining").decision.action_space, config)
    save_vocabulary(place / "vocabulary", quantiles)
    return place


@pytest.mark.slow
def test_only_the_trace_needs_the_setting(clang_path: str, place: Path, tmp_path: Path) -> None:
    data = (f"--clang_path={clang_path}", f"--data_path={place / 'corpus'}")
    cloning = (f"--data_path={place / 'trace'}", f"--vocab_path={place / 'vocabulary'}")
    quick = (f"--gin_files={_GIN}/behavioral_cloning_nn_agent.gin", "--gin_bindings=train_eval.num_epochs=1")
    run("rl/train_bc", f"--output_dir={tmp_path / 'clone'}", *cloning, *quick)
    start = f"--warmstart_policy_dir={tmp_path / 'clone' / 'policy'}"
    run("rl/train_locally", *data, f"--output_dir={tmp_path / 'training'}", start, *_TRAIN)
    policy_dir = tmp_path / "training" / "policy"
    weights = NetworkWeights.load(policy_dir)
    assert len(weights.features) == 38 + len(plugin_features.NAMES) and weights.features[38:] == plugin_features.NAMES
    (entry,) = map(json.loads, (tmp_path / "training" / "history.jsonl").read_text().splitlines())
    assert entry["failures"] == 0
    evaluated = (f"--policy_path={policy_dir}", f"--output_dir={tmp_path / 'evaluation'}", "--baselines=never")
    table = run("tools/evaluate", *data, *evaluated)
    assert "together" in table and "0 failures" in table
    assert deploy([PolicyRequest(policy_dir)], tmp_path / "prefix", [clang_path], strict=True).driver().is_file()

    assert set(export_policy(policy_dir, tmp_path / "forms", ["native", "cpp"])) == {"native", "cpp"}
    for form in ("tflite", "aot", "release_model"):
        with pytest.raises(PolicyError, match=rf"computes \(caller_linkage, .*exported in the format {form}; expected"):
            export_policy(policy_dir, tmp_path / "forms", ["native", form])


@pytest.mark.ci
def test_training_goes_on_from_the_policy_that_ships(clang_path: str, place: Path, tmp_path: Path) -> None:
    """Its rules observe the features that are its last inputs, but not the compiler's last ones."""
    shipped, policy_dir = pretrained.load("inlining-Oz-plugin"), tmp_path / "training" / "policy"
    shape = f"--gin_bindings=network.fc_layer_params={tuple(len(bias) for bias in shipped.biases[:-1])}"
    start = ("--warmstart_policy_dir=pretrained:inlining-Oz-plugin", shape)
    data = (f"--clang_path={clang_path}", f"--data_path={place / 'corpus'}")
    run(
        "rl/train_locally",
        *data,
        f"--output_dir={tmp_path / 'training'}",
        *start,
        *_TRAIN,
        "--gin_bindings=train_eval.num_iterations=0",
    )
    trained = NetworkWeights.load(policy_dir)
    assert trained.features != shipped.features
    again = trained.reordered(shipped.features)
    for name in ("quantiles", "kernels", "biases"):
        for one, other in zip(getattr(again, name), getattr(shipped, name), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.ci
def test_the_vocabulary_chooses_among_them(clang_path: str, place: Path, tmp_path: Path) -> None:
    """A network observes those features of which the vocabulary has a file; asking for others is an error."""
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    for path in (place / "vocabulary").iterdir():
        if path.stem not in plugin_features.NAMES or path.stem == "is_cold":
            (vocabulary / path.name).write_bytes(path.read_bytes())
    data = (f"--clang_path={clang_path}", f"--data_path={place / 'corpus'}", f"--vocab_path={vocabulary}")
    run("rl/train_locally", *data, f"--output_dir={tmp_path / 'training'}", *_TRAIN)
    assert NetworkWeights.load(tmp_path / "training" / "policy").features[38:] == ("is_cold",)
    error = run("rl/train_locally", *data, f"--output_dir={tmp_path / 'no'}", *_TRAIN, _SET, status=2)
    assert f"{vocabulary}: expected the features caller_linkage, callee_linkage, " in error
    cloning = (f"--data_path={place / 'trace'}", f"--vocab_path={vocabulary}", f"--output_dir={tmp_path / 'no'}")
    assert f"{vocabulary}: expected the features caller_linkage," in run("rl/train_bc", *cloning, _SET, status=2)
    assert not (tmp_path / "no").exists()
