"""Pages, tables and numbers as people read them; knows nothing of what is reported."""
