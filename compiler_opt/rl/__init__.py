"""Reinforcement learning: learners, the training loop."""

# Says which Keras TensorFlow is to use, before anything here imports it.
from compiler_opt.tensorflow_loading import load_tensorflow as load_tensorflow
