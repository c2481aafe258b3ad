#!/usr/bin/env bash
# Lint, format, types and tests: `./run_tests.sh [--ci|--slow] [pytest arguments]`. Without one, the tests of a few minutes;
# with --ci also those that every change must pass; with --slow all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

selection=(-m "not slow and not ci") needed=()
case ${1:-} in
  --ci) selection=(-m "not slow") && shift ;;
  --slow) selection=() needed=(--slow-tests) && shift ;;
esac

./bootstrap.sh --both-clangs --plugin "${needed[@]}"
export PATH="$PWD/.venv/bin:$PATH"
unset PYTHONDONTWRITEBYTECODE # a thousand processes import the same modules
ruff check .
ruff format --check .
mypy
# One worker per CPU, up to four: the tests start compilers, and TensorFlow takes a gigabyte for each worker. Each takes
# neighbours, which share what a module of tests has made, until it has to steal.
cpus=$(nproc)
options=(-q -n "$((cpus < 2 ? 2 : cpus > 4 ? 4 : cpus))" --dist worksteal --durations=20 --durations-min=5)
python -m pytest "${options[@]}" "${selection[@]}" "$@"
