"""One program made smaller: built, learnt by heart, built again with what was learnt, and measured."""
