#!/usr/bin/env bash
# Writes two locks for each Python: requirements/python3.*.txt, every package of pyproject.toml's ranges, of its extras
# `train`, `dev` and `docs`, and of tf-agents.in, and requirements/minimal-python3.*.txt, those without extras at the same
# versions. All are pinned, with the hashes of their files on PyPI. `requirements/lock.sh [options of uv pip compile]`: without any, it keeps every
# pin that still fits; `--upgrade` renews all, `--upgrade-package NAME` one. The Pythons need not be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3 -m venv "$tool"
"$tool/bin/pip" install -q --disable-pip-version-check uv==0.13.9

# compile PYTHON OUTPUT [options of uv pip compile]
compile() {
  local version=$1 output=$2
  shift 2
  "$tool/bin/uv" pip compile -q --no-config --no-python-downloads --no-annotate --generate-hashes \
    --python-version "$version" --python-platform x86_64-manylinux_2_28 --override requirements/overrides.txt \
    --custom-compile-command requirements/lock.sh --output-file "$output" "$@" pyproject.toml
}

for version in 3.10 3.11 3.12 3.13; do
  compile "$version" "requirements/python$version.txt" --extra train --extra dev --extra docs "$@" requirements/tf-agents.in
  # setuptools installs this project.
  compile "$version" "requirements/minimal-python$version.txt" --constraint "requirements/python$version.txt" "$@" - \
    <<<setuptools
done
