"""The command `train_bc` at google/ml-compiler-opt's path."""

from compiler_opt.tools.train_bc import entry

if __name__ == "__main__":
    entry()
