"""Command lines of modules: cc1 options, the allow-list, and a problem's changes to them."""
