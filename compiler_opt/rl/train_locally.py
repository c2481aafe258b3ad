"""The command `train_locally` at google/ml-compiler-opt's path."""

from compiler_opt.tools.train_locally import entry

if __name__ == "__main__":
    entry()
