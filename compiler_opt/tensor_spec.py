"""Specifications of tensors, shared by compiler, trace and policy.

The JSON form is LLVM's (`llvm/lib/Analysis/TensorSpec.cpp`):
`{"name": str, "type": "int64_t", "port": int, "shape": [int, ...]}`.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler_opt.errors import ProtocolError

_DTYPES: dict[str, np.dtype] = {
    "float": np.dtype("f4"),
    "double": np.dtype("f8"),
    **{f"{sign}int{bits}_t": np.dtype(f"{sign or 'i'}{bits // 8}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

MAX_TENSOR_BYTES = 1 << 24
"""Limit far above any real feature: a larger tensor is a sign of a corrupt or hostile header."""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Name, element type and shape of one tensor, in the host's byte order.

    Attributes:
      name: the feature's name, as LLVM spells it.
      shape: extent of each dimension, all positive; `()` and `(1,)` both hold one element.
      port: LLVM's output port; 0 except for models with several outputs.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    port: int = 0

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @functools.cached_property
    def num_bytes(self) -> int:
        return self.num_elements * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """LLVM's JSON form."""
        return {"name": self.name, "type": _NAMES[self.dtype], "port": self.port, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: Any) -> "TensorSpec":
        """Checks and converts LLVM's JSON form.

        Raises:
          ProtocolError: a field is missing or wrong; the message names the tensor.
        """
        if not isinstance(value, Mapping):
            raise ProtocolError(f"tensor spec: expected a JSON object, found {type(value).__name__}")
        fields: list[Any] = [value.get(key) for key in ("name", "type", "shape", "port")]
        name, type_name, shape, port = fields
        port = 0 if port is None else port
        if not isinstance(name, str) or not name or len(name) > 256:
            raise ProtocolError(f"tensor spec: expected a name, found {name!r:.80}")
        for ok, expected, found in (
            (type_name in _NAMES.values(), f"an element type among {', '.join(_DTYPES)}", type_name),
            (_is_shape(shape), "a shape of positive extents", shape),
            (isinstance(port, int) and not isinstance(port, bool) and port >= 0, "a port number", port),
        ):
            if not ok:
                raise ProtocolError(f"tensor {name!r}: expected {expected}, found {found!r:.80}")
        spec = cls(name, _DTYPES[type_name], tuple(shape), port)
        if spec.num_bytes > MAX_TENSOR_BYTES:
            raise ProtocolError(
                f"tensor {name!r}: shape {list(shape)} takes {spec.num_bytes} bytes, over the limit {MAX_TENSOR_BYTES}"
            )
        return spec


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= 8
        and all(isinstance(extent, int) and not isinstance(extent, bool) and 0 < extent < 1 << 31 for extent in value)
    )
