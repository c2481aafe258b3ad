"""Policies in the forms that others read; the only place below the learners where TensorFlow is used."""
