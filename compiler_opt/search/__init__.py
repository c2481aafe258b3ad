"""Search over inlining decisions, for one linked program."""
