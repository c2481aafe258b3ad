"""Action spaces: what kind of action a policy takes, and everything that depends on that."""
