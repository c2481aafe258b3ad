"""What modules are compiled with: cc1 options, which of them a corpus may have, and what a problem changes."""
