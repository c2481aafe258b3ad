"""Action spaces: kinds of actions, and everything that depends on them."""
