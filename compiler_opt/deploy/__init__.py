"""Deploys a trained policy as `mlgo-clang`, a drop-in compiler for any build."""
