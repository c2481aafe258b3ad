"""A policy in the form of LLVM's development mode: a folder with a TFLite model and a description of its outputs.

    model.tflite       made by `export.tflite`
    output_spec.json   a list of {"logging_name", "tensor_spec"}: the decision first, then other outputs to log

A model of a sampling policy has its own random numbers. TFLite keeps their state in the interpreter, of which LLVM has
one per compilation, and initialises it from two numbers in the model. The converter writes marks in their place, which
workers replace by the seed of a compilation, without TensorFlow. The samples differ from those of `policy.uniforms`.
"""

from compiler_opt.errors import PolicyError

TFLITE_FILE = "model.tflite"
OUTPUT_SPEC_FILE = "output_spec.json"

LOGITS = "logits"
"""The name, in the log, of the second output of a sampling model: float `[1, A]`."""

SEED_MARKS = (0x6B3D91C75AE2F084, 0x5C0E7A29D4F18B36)
"""The places of the seed and of a number that is never 0: given two zeros, TFLite chooses its own seed."""


def with_seed(model: bytes, seed: int) -> bytes:
    """Sets the seed of a sampling model.

    Args:
      model: as converted, with marks.
      seed: any integer; its lowest 64 bits count.

    Raises:
      PolicyError: the model does not have each mark once.
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
