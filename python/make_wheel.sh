#!/usr/bin/env bash
# Makes the wheel of the Python package, with the program inside. The tree stays as it is: everything happens in a copy.
#
#   python/make_wheel.sh [PROGRAM [FOLDER]]      build/release/weighlock, build/wheel
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$(realpath "${1:-$here/../build/release/weighlock}")
folder=${2:-$here/../build/wheel}
environment=$("$here/../tests/compat/install_env.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/python"
cp -r "$here/weighlock" "$here/pyproject.toml" "$here/setup.py" "$here/README.md" "$work/python/"
rm -rf "$work/python/weighlock/__pycache__"
rm -rf "$folder"
mkdir -p "$folder"
WEIGHLOCK_BINARY=$program "$environment/bin/python" -m pip wheel --disable-pip-version-check --no-input --quiet --no-deps \
  --no-build-isolation --wheel-dir "$folder" "$work/python"
ls "$folder"/weighlock-*.whl
