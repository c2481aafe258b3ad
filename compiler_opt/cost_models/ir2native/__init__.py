"""Predicts the native size of functions from their IR right after inlining (docs/cost_models.md).

functions.py     the features of functions right after inlining, and their sizes in the object
dataset.py       both, of the modules of a corpus, kept in files
linear.py        the first stage; trees.py and network.py correct it
model.py         all of them, calibrated and saved
training.py      fits a model to projects
evaluation.py    how far a model's predictions are off
"""
