#!/usr/bin/env bash
# Makes the Python environment of the real engines, once, outside the tree, and prints its path.
#
#   tests/real/install_env.sh            path on stdout, progress on stderr
#   tests/real/install_env.sh --path     only tell where it is (or would be)
#
# WEIGHLOCK_ENGINES_ENV names the folder; without it, a folder in the user's cache whose name has the
# hash of what is to be installed, so that a changed pin makes a new environment and never a mixed one.
# The stamp file is written last: a folder without it is half made, and is made again from nothing.
# Needs: python3 (3.10 or newer) with venv and headers, and about 6 GB of disk. Takes 2 to 6 minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${WEIGHLOCK_PYTHON:-python3}

say() { printf 'engines: %s\n' "$*" >&2; }

# The interpreter's version is part of the key: an environment belongs to one interpreter.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
key=$({ printf '%s\n' "$version"; cat "$here/requirements.txt"; } | sha256sum | cut -c1-12)
env_dir=${WEIGHLOCK_ENGINES_ENV:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weighlock/engines-$key}
stamp=$env_dir/.weighlock-complete

if [ "${1:-}" = --path ]; then
  echo "$env_dir"
  exit 0
fi

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
  say "found in $env_dir"
  echo "$env_dir"
  exit 0
fi

# Two builds at once would write into one folder: the second waits for the first, then finds its stamp.
mkdir -p "$(dirname "$env_dir")"
exec 9>"$env_dir.lock"
flock 9
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
  say "made meanwhile in $env_dir"
  echo "$env_dir"
  exit 0
fi

# A folder that somebody named is removed only when it was ours: it must be absent, empty or a venv. The default one
# is ours, and so is what an interrupted run left of it.
if [ -n "${WEIGHLOCK_ENGINES_ENV:-}" ] && [ -e "$env_dir" ] &&
  [ ! -f "$env_dir/pyvenv.cfg" ] && [ -n "$(ls -A "$env_dir")" ]; then
  say "$env_dir exists and is not a Python environment; name another folder in WEIGHLOCK_ENGINES_ENV"
  exit 1
fi
free_kib=$(df -Pk "$(dirname "$env_dir")" | awk 'NR==2 {print $4}')
if [ "$free_kib" -lt $((10 * 1024 * 1024)) ]; then
  say "$((free_kib / 1024)) MiB are free beside $env_dir, 10240 are needed; free some," \
    "or name another disk in WEIGHLOCK_ENGINES_ENV"
  exit 1
fi

began=$(date +%s)
say "making $env_dir with $("$python" --version) (about 6 GB, 2 to 6 minutes)"
rm -rf "$env_dir"
if ! "$python" -m venv "$env_dir" >&2; then
  say "python3 has no venv module here: tools/install.sh test installs it"
  exit 1
fi
say "installing $(grep -c == "$here/requirements.txt") packages"
# Compiling every module of 6 GB to byte code costs a minute of both cores; each start compiles what it imports, once.
"$env_dir/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile --progress-bar off \
  --no-deps -r "$here/requirements.txt" >&2

say "importing what the servers import"
PYTHONPATH="$here/stubs" "$env_dir/bin/python" "$here/check_env.py" >&2
echo "$key" >"$stamp.part"
mv "$stamp.part" "$stamp"
say "complete after $(($(date +%s) - began)) s"
echo "$env_dir"
