"""The functions of arrays with which a network's inputs are computed alike in numpy and in TensorFlow.

What is written with these and with operators has one definition for training and for policies as TensorFlow graphs.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Arrays:
    """A library's functions, named as numpy's; arrays of flags are bool.

    Attributes:
      rows: `[T, ...]` to `[T, N]`, all further axes as one.
      float32: converts numbers or flags.
      is_nan: elementwise.
      where: chooses elementwise; a Python number takes the other's type.
      stack: a list of arrays, along a new `axis`.
      concatenate: a list of arrays, along an `axis`.
      swap_last: swaps the last two of three axes.
      any: of flags, over an `axis`.
      count: how many flags are set, over an `axis`; a number of any type.
      max: the largest, over an `axis`.
    """

    rows: Callable[..., Any]
    float32: Callable[..., Any]
    is_nan: Callable[..., Any]
    where: Callable[..., Any]
    stack: Callable[..., Any]
    concatenate: Callable[..., Any]
    swap_last: Callable[..., Any]
    any: Callable[..., Any]
    count: Callable[..., Any]
    max: Callable[..., Any]


NUMPY = Arrays(
    rows=lambda array: array.reshape(len(array), -1),
    float32=lambda array: array.astype(np.float32),
    is_nan=np.isnan,
    where=np.where,
    stack=np.stack,
    concatenate=np.concatenate,
    swap_last=lambda array: array.swapaxes(1, 2),
    any=np.any,
    count=np.count_nonzero,
    max=np.max,
)
