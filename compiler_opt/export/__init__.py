"""Policies in the forms that LLVM takes."""

# Says which Keras TensorFlow is to use, before anything here imports it.
from compiler_opt import tensorflow_loading as tensorflow_loading
