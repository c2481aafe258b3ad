"""Machine-learned policies for decisions inside LLVM: trained, measured and put to work with a stock clang."""

__version__ = "0.1.0"
