"""Makes one program smaller: trains a policy on it, builds it with the policy, and measures."""
