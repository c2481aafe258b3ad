"""Models that predict what code costs without compiling or running it."""
