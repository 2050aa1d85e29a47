#!/usr/bin/env bash
# Makes the Python environment in which the real awex package plans and transfers on a CPU, and prints its path.
#
#   tests/awex/install_env.sh            path on stdout, progress on stderr
#   tests/awex/install_env.sh --path     only tell where it is (or would be)
#
# It is 3 MB on top of the environment of the real engines (tests/real/install_env.sh, made first where it isn't there):
# torch is looked up in that one and not installed twice. A few seconds, once; the name has the hash of what is to be
# installed and of what it stands on, so a changed pin of either makes a new one. The stamp is written last: a folder
# without it is half made, and is made again from nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
engines_script=$here/../real/install_env.sh

say() { printf 'awex: %s\n' "$*" >&2; }

engines=$("$engines_script" --path)
key=$({ printf '%s\n' "$engines"; cat "$here/requirements.txt"; } | sha256sum | cut -c1-12)
env_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weighlock/awex-$key
stamp=$env_dir/.weighlock-complete

if [ "${1:-}" = --path ]; then
  echo "$env_dir"
  exit 0
fi
"$engines_script" >/dev/null

# Two at once would write into one folder: the second waits for the first, then finds its stamp.
mkdir -p "$(dirname "$env_dir")"
exec 9>"$env_dir.lock"
flock 9
if [ -f "$stamp" ]; then
  say "found in $env_dir"
  echo "$env_dir"
  exit 0
fi

say "making $env_dir on top of $engines"
rm -rf "$env_dir"
"$engines/bin/python" -m venv --without-pip "$env_dir" >&2
packages=$("$env_dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$engines/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$packages/engines.pth"
"$engines/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile --progress-bar off --quiet \
  --no-deps --target "$packages" -r "$here/requirements.txt" >&2
say "planning once, $("$env_dir/bin/python" "$here/package.py")"
touch "$stamp"
echo "$env_dir"
