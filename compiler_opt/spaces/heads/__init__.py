"""What is learned of each action space, in TensorFlow; imported by `ActionSpace.head` only: that takes seconds."""

# Says which Keras TensorFlow is to use, before anything here imports it.
from compiler_opt import tensorflow_loading as tensorflow_loading
