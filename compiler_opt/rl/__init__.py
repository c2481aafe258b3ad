"""Reinforcement learning: the pipeline, the training loop and its algorithms."""

# Sets the environment that TensorFlow reads on import, before anything here imports it.
from compiler_opt import tensorflow_loading as tensorflow_loading
