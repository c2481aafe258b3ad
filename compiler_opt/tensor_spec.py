"""What one tensor of a decision looks like: the words shared by compiler, trace and policy.

The JSON form is LLVM's (`llvm/lib/Analysis/TensorSpec.cpp`):
`{"name": str, "type": "int64_t", "port": int, "shape": [int, ...]}`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
"""Far above any real feature; a header that claims more is corrupt or hostile."""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Name, element type and shape of one tensor, in the host's byte order.

    Attributes:
      name: the feature's name, as LLVM spells it.
      dtype: element type.
      shape: extent of each dimension, all positive; `()` and `(1,)` both hold one element.
      port: LLVM's output port, 0 for anything but multi-output models.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    port: int = 0

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * self.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """LLVM's JSON form."""
        return {"name": self.name, "type": _NAMES[self.dtype], "port": self.port, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: Any) -> "TensorSpec":
        """Checks and converts LLVM's JSON form.

        Raises:
          ProtocolError: a field is missing or is out of range; the message names the tensor.
        """
        if not isinstance(value, Mapping):
            raise ProtocolError(f"tensor spec: expected a JSON object, found {type(value).__name__}")
        name, type_name, shape, port = (value.get(key) for key in ("name", "type", "shape", "port"))
        if not isinstance(name, str) or not name or len(name) > 256:
            raise ProtocolError(f"tensor spec: expected a name, found {name!r:.80}")
        if not isinstance(type_name, str) or type_name not in _DTYPES:
            raise ProtocolError(
                f"tensor {name!r}: expected an element type among {', '.join(_DTYPES)}; found {type_name!r:.80}"
            )
        if not isinstance(shape, Sequence) or not _is_shape(shape):
            raise ProtocolError(f"tensor {name!r}: expected a shape of positive extents, found {shape!r:.80}")
        if port is None:
            port = 0
        if not isinstance(port, int) or isinstance(port, bool) or port < 0:
            raise ProtocolError(f"tensor {name!r}: expected a port number, found {port!r:.80}")
        spec = cls(name, _DTYPES[type_name], tuple(shape), port)
        if spec.num_bytes > MAX_TENSOR_BYTES:
            raise ProtocolError(
                f"tensor {name!r}: shape {list(shape)} takes {spec.num_bytes} bytes, over the limit {MAX_TENSOR_BYTES}"
            )
        return spec


def _is_shape(value: Sequence[Any]) -> bool:
    return (
        not isinstance(value, str)
        and len(value) <= 8
        and all(isinstance(extent, int) and not isinstance(extent, bool) and 0 < extent < 1 << 31 for extent in value)
    )
