"""Predicts the native size of functions from their IR right after inlining (docs/cost_models.md).

inlined.py       the IR right after inlining, by `opt`
ir_text.py       reads it; operands.py, instructions.py and pressure.py count what decides its size
features.py      the features of a function
labels.py        the sizes of functions in the module's object
dataset.py       both, of the modules of a corpus, kept in files
linear.py        the first stage; trees.py and network.py correct it
model.py         all of them, calibrated and saved
training.py      fits a model to projects
evaluation.py    how far a model's predictions are off
"""
