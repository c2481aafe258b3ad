"""A policy against the compiler's default on a corpus: what is measured, how sure that is, and the report about it."""
