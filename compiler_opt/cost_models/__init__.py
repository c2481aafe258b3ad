"""Models that predict what code costs without running it."""
