"""Whether cost models rank builds of a program as measurements do."""
