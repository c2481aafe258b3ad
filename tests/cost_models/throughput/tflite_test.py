"""The exported file predicts what the model predicts, for blocks of a real compiler and any number of them."""

import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS, read_object
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.model import ThroughputModel, annotation_inputs, network_of, new_description
from compiler_opt.cost_models.throughput.networks.network import ANNOTATIONS_KEY
from compiler_opt.cost_models.throughput.tflite import OUTPUT, tflite_model
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import probe
from tests.small_corpus import BUSY_SOURCES

CLANG = Path("/usr/bin/clang-22")


def make(kind: str, decoder: Decoder, codes: list[bytes]) -> ThroughputModel:
    import tensorflow as tf

    network = network_of(kind)
    tf.keras.utils.set_random_seed(0)
    instructions = [decoder.decode(code) or [] for code in codes]
    return ThroughputModel(new_description(kind, {"units": 16}, network.vocabulary(instructions), "test"))


@pytest.mark.slow
def test_predicts_what_the_model_predicts(tmp_path: Path) -> None:
    import tensorflow as tf

    (tmp_path / "x.c").write_text(BUSY_SOURCES["loops/alone.c"])
    command = [str(CLANG), "-O2", "-fbasic-block-address-map", *FLAGS[1:], "-c", "x.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    blocks, decoder = read_object(tmp_path / "x.o", probe(CLANG), "x.o"), Decoder()
    instructions = [decoder.decode(block.code) or [] for block in blocks]
    assert len(blocks) > 3 and all(instructions)
    model = make("graph", decoder, [block.code for block in blocks])
    annotations = annotation_inputs(blocks)
    annotations[::2] = [0.4, 0, 0, 1.1, 1, 0, 1, 1]
    encoded = model.network.encode(instructions)
    expected = model.predict_encoded(encoded, annotations)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow announces that the interpreter moves to another package
        runner = tf.lite.Interpreter(model_content=tflite_model(model)).get_signature_runner()
    for size in (len(blocks), 1, 3):
        rows = np.arange(size)
        batch = model.network.batch(encoded.take(rows))
        found = runner(**batch, **{ANNOTATIONS_KEY: annotations[rows]})[OUTPUT]
        assert found == pytest.approx(expected[:size], rel=1e-4)


def test_the_sequence_network_is_refused() -> None:
    model = make("sequence", Decoder(), [b"\x90"])
    with pytest.raises(ConfigError, match="only the graph network can be exported, not 'sequence'"):
        tflite_model(model)
