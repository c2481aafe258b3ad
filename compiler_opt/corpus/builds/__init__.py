"""What a build made, as its descriptions say it; one module for each kind of description."""
