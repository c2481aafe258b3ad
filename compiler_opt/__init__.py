"""Machine-learned policies for decisions inside LLVM: training, evaluation and deployment with a stock clang."""

__version__ = "0.2.0"
