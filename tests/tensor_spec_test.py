"""Tensor specs in LLVM's JSON form, valid and invalid."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.tensor_spec import TensorSpec

_GOOD = {"name": "x", "type": "float", "port": 0, "shape": [1, 33]}


def test_round_trip() -> None:
    spec = TensorSpec.from_json(_GOOD)
    assert spec == TensorSpec("x", np.dtype("f4"), (1, 33))
    assert (spec.num_elements, spec.num_bytes) == (33, 132)
    assert spec.to_json() == _GOOD


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers(name: str) -> None:
    assert TensorSpec.from_json({**_GOOD, "type": f"{name}_t"}).dtype == np.dtype(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "expected a name"),
        ({"name": 3}, "expected a name"),
        ({"type": "complex"}, "'x': expected an element type"),
        ({"type": ["float"]}, "'x': expected an element type"),
        ({"shape": [0]}, "'x': expected a shape"),
        ({"shape": [-1]}, "'x': expected a shape"),
        ({"shape": [True]}, "'x': expected a shape"),
        ({"shape": "12"}, "'x': expected a shape"),
        ({"shape": None}, "'x': expected a shape"),
        ({"shape": [1 << 20, 1 << 20]}, "over the limit"),
        ({"port": -1}, "'x': expected a port"),
    ],
)
def test_invalid_specs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        TensorSpec.from_json({**_GOOD, **change})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.fixed_dictionaries({}, optional={"name": _JSON, "type": _JSON, "shape": _JSON, "port": _JSON}) | _JSON)
def test_any_json_gives_a_spec_or_a_named_error(value: Any) -> None:
    try:
        spec = TensorSpec.from_json(value)
    except ProtocolError as error:
        assert "\n" not in str(error).replace("\\n", "")
    else:
        assert TensorSpec.from_json(spec.to_json()) == spec
