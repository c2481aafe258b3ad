"""The options of LLVM's passes: which do anything, which set to choose, and the sets that ship."""
