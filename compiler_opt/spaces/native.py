"""A policy's native form: one file, which `native/policy_network.h` runs without Python or TensorFlow.

Little-endian; every section starts at a multiple of 8 bytes, and so does the end of the file:

    "mlgo-net", u32 version, u32 CRC-32 of all that follows, u64 size of the file,
    u32 features F, u32 layers L, u32 bytes of names, u32 bytes of metadata
    f64 margin, from version 2 on
    u32 units of the LSTM U, u32 zero, in version 3 only
    u32[L]      width of each layer
    u32[F]      boundaries of each feature
    i64[...]    the boundaries, feature after feature, ascending; those of floating-point features by `ordered`
    f32[W]      the first layer's bias
    f32[..., W] the first layer's products: per feature a row for each bucket between its boundaries
    f32[U, W]   the LSTM's recurrent kernel, in version 3 only
    f32[...]    each further layer: bias [W'], then kernel [inputs, W']
    names       of the features, each with a NUL
    metadata    JSON, with a NUL

W is the layer's width, padded with zeros to a multiple of 16. A recurrent policy (see `NetworkWeights`) has version 3:
its first layer is that of the LSTM, with 4 U gates. Another policy with a margin has version 2, and all others have
version 1, so that no evaluator ignores what it does not know.
"""

import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand

NATIVE_FILE = "network.mlgo"
VERSION, VERSION_WITH_MARGIN, VERSION_WITH_LSTM = 1, 2, 3
BLOB_SYMBOL = "mlgo_policy_blob"
"""The symbol in a generated source; its size has the suffix `_size`."""

_MAGIC = b"mlgo-net"
_LANE = 16
_CHECKSUMMED_FROM = 16
_ALIGNMENT = 8
# As in policy_network.h.
_MAX_FEATURES, MAX_WIDTH, _MAX_LAYERS = 512, 1024, 16


@dataclasses.dataclass(frozen=True)
class NativeModel:
    """How C++ decides by a native form.

    Attributes:
      expression: makes a model for `native/release_model.h`, which describes models.
      headers: in `native/`, of the model's class, each after those that it includes; all need `policy_network.h`.
    """

    expression: str
    headers: tuple[str, ...] = ()


def native_blob(weights: NetworkWeights, *, of_integers: bool = True, about: Mapping[str, Json] | None = None) -> bytes:
    """The content of `network.mlgo`.

    Args:
      weights: of the policy.
      of_integers: whether the features are integers; otherwise floating-point numbers, compared by `ordered`.
      about: further metadata.

    Raises:
      PolicyError: the network is larger than the evaluator allows, or its products overflow.
    """
    if weights.lstm is not None and not of_integers:
        raise PolicyError("policy network: is recurrent (an LSTM), which only policies for inlining may be")
    kernels, biases = list(weights.kernels), list(weights.biases)
    if weights.lstm is not None:
        kernels, biases = [weights.lstm.kernel, *kernels], [weights.lstm.bias, *biases]
    widths = [len(bias) for bias in biases]
    _check_limits(weights, widths)
    encoder = QuantileEncoder(weights.quantiles)
    boundaries, rows = [], []
    for index, thresholds in enumerate(encoder.integer_thresholds if of_integers else encoder.ordered_thresholds):
        kernel = kernels[0][len(TRANSFORMS) * index : len(TRANSFORMS) * (index + 1)]
        boundaries.append(thresholds.values)
        rows.append(expand(thresholds.ranks[:, np.newaxis]).astype(np.float64) @ kernel.astype(np.float64))
    table = _lanes(np.concatenate(rows))
    if not np.isfinite(table).all():
        raise PolicyError("policy network: its first layer overflows; train it again")
    names = b"".join(name.encode() + b"\0" for name in weights.features)
    metadata = json.dumps({**weights.metadata, **(about or {})}, sort_keys=True).encode() + b"\0"
    sections = [
        np.array(widths, "<u4").tobytes(),
        np.array([len(values) for values in boundaries], "<u4").tobytes(),
        np.concatenate(boundaries).astype("<i8").tobytes(),
        _lanes(biases[0]).tobytes(),
        table.tobytes(),
        _lanes(weights.lstm.recurrent_kernel).tobytes() if weights.lstm is not None else b"",
        b"".join(
            _lanes(bias).tobytes() + _lanes(kernel).tobytes()
            for kernel, bias in zip(kernels[1:], biases[1:], strict=True)
        ),
        names,
        metadata,
    ]
    content = b"".join(section + bytes(-len(section) % _ALIGNMENT) for section in sections)
    head = struct.pack("<IIII", len(weights.features), len(widths), len(names), len(metadata))
    if weights.margin or weights.lstm is not None:
        head += struct.pack("<d", weights.margin)
    if weights.lstm is not None:
        head += struct.pack("<II", weights.lstm.units, 0)
    size = _CHECKSUMMED_FROM + 8 + len(head) + len(content)
    checked = struct.pack("<Q", size) + head + content
    version = VERSION_WITH_MARGIN if weights.margin else VERSION
    if weights.lstm is not None:
        version = VERSION_WITH_LSTM
    return _MAGIC + struct.pack("<II", version, zlib.crc32(checked)) + checked


def embedded_source(blob: bytes, symbol: str = BLOB_SYMBOL) -> str:
    """C++ that defines a blob as data: `extern "C" const unsigned char SYMBOL[]` and `const size_t SYMBOL_size`."""
    return (
        "// A trained policy as data; made by compiler_opt, see spaces/native.py.\n"
        "#include <cstddef>\n\n"
        f'extern "C" {{\nextern const unsigned char {symbol}[];\nextern const std::size_t {symbol}_size;\n}}\n\n'
        f"alignas(64) const unsigned char {symbol}[] = {{\n{byte_rows(blob)}}};\n"
        f"const std::size_t {symbol}_size = sizeof({symbol});\n"
    )


def byte_rows(content: bytes, per_row: int = 32) -> str:
    """The lines between the braces of a C array."""
    rows = (content[start : start + per_row] for start in range(0, len(content), per_row))
    return "".join("    " + ",".join(map(str, row)) + ",\n" for row in rows)


def include_directory() -> Path:
    """The folder of `policy_network.h`."""
    return Path(__file__).parents[1] / "native"


def _check_limits(weights: NetworkWeights, widths: list[int]) -> None:
    for what, found, limit in (
        ("features", len(weights.features), _MAX_FEATURES),
        ("layers", len(widths), _MAX_LAYERS),
        ("units in a layer", max(widths), MAX_WIDTH),
    ):
        if not 0 < found <= limit:
            raise PolicyError(f"policy network: expected 1 to {limit} {what} for the native form, found {found}")
    odd = [name for name in weights.features if not name or "\0" in name]
    if odd:
        raise PolicyError(f"policy network: {odd[0]!r} is not the name of a feature")


def _lanes(rows: np.ndarray) -> np.ndarray:
    """Pads the last axis with zeros to a multiple of the lane; little-endian float32."""
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % _LANE)]
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(np.pad(rows, padding), "<f4")
