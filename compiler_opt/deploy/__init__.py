"""A trained policy put to work: `mlgo-clang`, a drop-in compiler that any build can use."""
