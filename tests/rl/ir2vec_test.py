"""IR2Vec embeddings from the command line, at smoke size: trace, training, evaluation, refusals; and cloning."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.llvm.ir2vec import components, read_vocabulary
from compiler_opt.policies.model_card import MARKDOWN_FILE, ModelCard
from compiler_opt.policies.vocabulary import load_vocabulary, save_vocabulary
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl import training_run
from compiler_opt.rl.behavioral_cloning import Cloner, Examples
from compiler_opt.rl.config import BehavioralCloningConfig, VocabularyConfig
from compiler_opt.rl.quantiles import trace_quantiles
from compiler_opt.rl.trace_files import Trace
from compiler_opt.spaces.heads.categorical import BinaryHead
from tests import programs
from tests.ir2vec_vocabulary import write_vocabulary
from tests.small_corpus import make_small_corpus

pytestmark = pytest.mark.slow

_INLINING = problems.load("inlining")
_GIN = "gin_configs/inlining"
_TRAIN = (
    f"--gin_files={_GIN}/ppo_nn_agent.gin",
    f"--gin_files={_GIN}/ir2vec.gin",
    "--gin_bindings=train_eval.num_iterations=1",
    "--gin_bindings=train_eval.num_modules=3",
    "--gin_bindings=train_eval.rollouts_per_module=3",
    "--num_workers=1",
)


def run(program: str, *arguments: str, vocabulary: Path | None = None, status: int = 0) -> str:
    """Standard output, or the error of a run that is expected to fail."""
    given = () if vocabulary is None else (f"--gin_bindings=inlining.ir2vec_vocabulary='{vocabulary}'",)
    result = programs.run(f"compiler_opt/{program}.py", *arguments, *given)
    assert result.returncode == status, result.stderr
    if not status:
        return result.stdout
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
    return line


@pytest.fixture(scope="module")
def clang() -> str:
    path = shutil.which("clang-22")
    assert path is not None
    return path


@pytest.fixture(scope="module")
def place(clang: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all steps' outputs."""
    place = tmp_path_factory.mktemp("ir2vec")
    corpus, vocabulary = place / "corpus", write_vocabulary(place / "ir2vec.json")
    write_vocabulary(place / "other.json", seed=2)
    corpus.mkdir()
    make_small_corpus(corpus, clang)
    with_clang = (f"--clang_path={clang}", f"--data_path={corpus}")
    trace = f"--output_path={place / 'trace'}"
    run("tools/generate_default_trace", *with_clang, trace, "--num_workers=1", vocabulary=vocabulary)
    # As generate_vocab does, without waiting for TensorFlow once more.
    save_vocabulary(
        place / "vocabulary",
        trace_quantiles(Trace(place / "trace"), _INLINING.decision.action_space, VocabularyConfig(16)),
    )
    quantiles = f"--vocab_path={place / 'vocabulary'}"
    run(
        "rl/train_locally", *with_clang, f"--output_dir={place / 'training'}", quantiles, *_TRAIN, vocabulary=vocabulary
    )
    return place


@pytest.mark.ci
def test_each_step_knows_the_vocabulary(place: Path) -> None:
    expected = read_vocabulary(place / "ir2vec.json").sha256
    assert json.loads((place / "trace.meta.json").read_text())["toolchain"]["ir2vec_vocabulary"] == expected
    policy = place / "training" / "policy"
    weights, card = NetworkWeights.load(policy), ModelCard.load(policy)
    assert len(weights.features) == 38 + 16 and len(components(weights.features)) == 16
    assert card is not None and card.compiler is not None
    assert card.compiler["ir2vec_vocabulary"] == expected
    assert expected in (policy / MARKDOWN_FILE).read_text()
    assert (policy / "saved_model.pb").is_file() and not (policy / "model.tflite").exists()
    history = (place / "training" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["failures"] for line in history] == [0]


def test_what_only_embeddings_tell_is_cloned(place: Path) -> None:
    """The trace's decisions replaced by the sign of one number, with all else made useless."""
    trace = Trace(place / "trace")
    (batch,) = trace.batches()
    quantiles = load_vocabulary(place / "vocabulary", _INLINING.decision.supported_features(batch.features))
    embeddings = {name: values for name, values in quantiles.items() if name.startswith("callee_embedding")}
    kind = _INLINING.decision.head(embeddings, trace.features)
    assert isinstance(kind, BinaryHead) and kind.features == tuple(embeddings)
    observations = kind.observe(batch.features)
    labels = (observations["quantile_ranks"][:, 3] > 0.5).astype(np.int64)
    examples = Examples(observations, labels, 2)
    config = BehavioralCloningConfig(num_epochs=100, batch_size=8, learning_rate=1e-2, patience=100)
    cloned = Cloner(kind, "inlining_decision", NetworkConfig((16,)), config).clone(examples, examples)
    assert cloned.best["accuracy"] == 1 > cloned.best["majority_rate"]


def test_a_run_tells_vocabularies_apart(place: Path) -> None:
    quantiles = {"callee_embedding_0": np.arange(3.0)}
    one, other = (read_vocabulary(place / name) for name in ("ir2vec.json", "other.json"))
    assert len({training_run.fingerprint(tuple(quantiles), quantiles, given) for given in (one, other, None)}) == 3


@pytest.mark.ci
def test_the_policy_is_evaluated(place: Path, clang: str) -> None:
    data, policy = f"--data_path={place / 'corpus'}", f"--policy_path={place / 'training' / 'policy'}"
    arguments = (data, policy, f"--output_dir={place / 'evaluation'}", "--baselines=never")
    table = run("tools/evaluate", f"--clang_path={clang}", *arguments, vocabulary=place / "ir2vec.json")
    assert "together" in table and "0 failures" in table
    assert read_vocabulary(place / "ir2vec.json").sha256 in (place / "evaluation" / "summary.json").read_text()

    error = run("tools/evaluate", f"--clang_path={clang}", *arguments, status=2)
    assert "found none; give the same file as inlining.ir2vec_vocabulary in gin" in error
    error = run("tools/evaluate", f"--clang_path={clang}", *arguments, vocabulary=place / "other.json", status=2)
    assert "was made with the IR2Vec vocabulary of SHA-256" in error and "other.json" in error
    error = run("tools/evaluate", "--clang_path=clang-19", *arguments, vocabulary=place / "ir2vec.json", status=2)
    assert "clang-19: sends no embeddings by -ml-inliner-ir2vec-vocab-file=" in error
    error = run(
        "tools/deploy", f"--policy_path={place / 'training' / 'policy'}", f"--output_dir={place / 'prefix'}", status=2
    )
    assert "observes IR2Vec embeddings, so it has no native form" in error


def test_training_with_another_vocabulary_is_refused(place: Path, clang: str) -> None:
    other = place / "other.json"
    cloning = (f"--output_dir={place / 'no'}", f"--data_path={place / 'trace'}", f"--vocab_path={place / 'vocabulary'}")
    assert "other.json" in run("rl/train_bc", *cloning, vocabulary=other, status=2)
    arguments = (f"--clang_path={clang}", f"--data_path={place / 'corpus'}", *_TRAIN)
    start = (f"--output_dir={place / 'no'}", f"--warmstart_policy_dir={place / 'training' / 'policy'}")
    assert "other.json" in run("rl/train_locally", *arguments, *start, vocabulary=other, status=2)
    assert not (place / "no").exists()


def test_what_is_missing_is_named(place: Path, clang: str) -> None:
    """The shipped file names one that the user has to bring."""
    arguments = (f"--clang_path={clang}", f"--data_path={place / 'corpus'}", f"--output_path={place / 'no'}")
    error = run("tools/generate_default_trace", *arguments, f"--gin_files={_GIN}/ir2vec.gin", status=2)
    assert "inlining.ir2vec_vocabulary: ir2vec_vocabulary.json: cannot be read: No such file" in error
