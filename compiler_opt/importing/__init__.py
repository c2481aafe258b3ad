"""Reads policies that google/ml-compiler-opt has trained, without running what they contain.

`saved_model.py` and `tflite.py` read a file into a `graph.Model`; `recognition.py` finds the policy network in it;
`imported_policy.py` compares the two, and writes a policy's folder.
"""
