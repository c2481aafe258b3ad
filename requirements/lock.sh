#!/usr/bin/env bash
# Writes requirements/python3.*.txt: every package of pyproject.toml's ranges and of its extra `dev`, pinned, with the
# hashes of its files on PyPI. `requirements/lock.sh [options of uv pip compile]`: without any, it keeps every pin that still
# fits; `--upgrade` renews all, `--upgrade-package NAME` one. The Pythons need not be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3 -m venv "$tool"
"$tool/bin/pip" install -q --disable-pip-version-check uv==0.13.9

for version in 3.10 3.11 3.12 3.13; do
  "$tool/bin/uv" pip compile -q --no-config --no-python-downloads --no-annotate --generate-hashes "$@" \
    --python-version "$version" --python-platform x86_64-manylinux_2_28 --extra dev --override requirements/overrides.txt \
    --custom-compile-command requirements/lock.sh --output-file "requirements/python$version.txt" pyproject.toml
done
