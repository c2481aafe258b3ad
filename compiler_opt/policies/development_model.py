"""A policy as LLVM's development mode reads it: a folder with a TFLite model and what its outputs are.

    model.tflite       see `export.tflite`, which makes it
    output_spec.json   a list of {"logging_name", "tensor_spec"}: the decision first, then what else is to be logged

A model that samples draws by itself. TFLite keeps the state of its random numbers in the interpreter, which LLVM makes
once per compilation, and starts it from two numbers within the model. The converter leaves marks in their place, so
that a worker gives each compilation a seed of its own without TensorFlow. The draws are not those of `policy.uniforms`.
"""

from compiler_opt.errors import PolicyError

TFLITE_FILE = "model.tflite"
OUTPUT_SPEC_FILE = "output_spec.json"

LOGITS = "logits"
"""How the log calls what a sampling model tells beside its decision: float `[1, A]`."""

SEED_MARKS = (0x6B3D91C75AE2F084, 0x5C0E7A29D4F18B36)
"""Where the seed of a compilation goes, and what is never 0: with two zeros TFLite would take a seed of its own."""


def with_seed(model: bytes, seed: int) -> bytes:
    """A sampling model that draws by a seed.

    Args:
      model: as converted, with the marks in it.
      seed: any integer; as many different streams as 64 bits have.

    Raises:
      PolicyError: the marks are not there, each once.
    """
    for mark, value in zip(SEED_MARKS, (seed % (1 << 64), 1), strict=True):
        content = mark.to_bytes(8, "little")
        if model.count(content) != 1:
            raise PolicyError(
                f"TFLite: expected one mark for a seed in the model, found {model.count(content)}; convert the policy "
                "again, with the version of TensorFlow that ./bootstrap.sh installs"
            )
        model = model.replace(content, value.to_bytes(8, "little"))
    return model
