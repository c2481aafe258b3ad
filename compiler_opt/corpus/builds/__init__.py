"""Lists the objects of a build; one module per source: compilation database, parameter file, Bazel, folder."""
