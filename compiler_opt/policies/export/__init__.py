"""Policies in the forms that others read; the only place below the learners where TensorFlow is used."""

from compiler_opt import rl as rl  # says which Keras TensorFlow is to use, before anything imports it
