"""The networks, in Keras; only these files import TensorFlow."""
