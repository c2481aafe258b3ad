"""Trained policies in the formats that LLVM reads."""

# Sets the environment that TensorFlow reads on import, before anything here imports it.
from compiler_opt import tensorflow_loading as tensorflow_loading
