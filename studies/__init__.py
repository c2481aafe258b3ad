"""Studies: programs behind figures in `docs/`, `python -m studies.NAME`; nothing in `compiler_opt/` needs them."""
