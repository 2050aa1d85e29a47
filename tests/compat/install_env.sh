#!/usr/bin/env bash
# Makes the small Python environment in which AReaL's own controller runs, once, outside the tree, and prints its path.
# 60 MB, some seconds. The stamp is written last: a folder without it is half made, and is made again from nothing.
#
#   tests/compat/install_env.sh        path on stdout, progress on stderr
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${WEIGHLOCK_PYTHON:-python3}

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
key=$({ printf '%s\n' "$version"; cat "$here/requirements.txt"; } | sha256sum | cut -c1-12)
env_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weighlock/compat-$key
stamp=$env_dir/.weighlock-complete

# Two at once would write into one folder: the second waits for the first, then finds its stamp.
mkdir -p "$(dirname "$env_dir")"
exec 9>"$env_dir.lock"
flock 9
if [ ! -f "$stamp" ]; then
  rm -rf "$env_dir"
  if ! "$python" -m venv "$env_dir" >&2; then
    echo "compat: python3 has no venv module here: tools/install.sh test installs it" >&2
    exit 1
  fi
  "$env_dir/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile --progress-bar off --quiet \
    --no-deps -r "$here/requirements.txt" >&2
  touch "$stamp"
fi
echo "$env_dir"
