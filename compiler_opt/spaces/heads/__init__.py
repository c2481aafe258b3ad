"""Heads of the action spaces, in TensorFlow, which takes seconds to import: only `ActionSpace.head` imports them."""

# Sets the environment that TensorFlow reads on import, before anything here imports it.
from compiler_opt import tensorflow_loading as tensorflow_loading
