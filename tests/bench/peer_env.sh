#!/usr/bin/env bash
# Makes the environment in which the peer's gateway (AReaL, as released) runs, and prints its interpreter's path.
# Nothing of it is part of this repository; it lies beside the user's other caches. May be run twice in a row.
#
#   tests/bench/peer_env.sh [DIRECTORY]     default: ~/.cache/weighlock/bench-peer
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/weighlock/bench-peer}
release=areal==1.0.4
mark=$directory/installed
wanted=$(cat "$here/peer_requirements.txt"; echo "$release")
if [ ! -f "$mark" ] || [ "$(cat "$mark")" != "$wanted" ]; then
  mkdir -p "$directory"
  [ -x "$directory/venv/bin/python" ] || python3 -m venv "$directory/venv" >&2
  "$directory/venv/bin/pip" install -q -r "$here/peer_requirements.txt" >&2
  "$directory/venv/bin/pip" install -q --no-deps "$release" >&2   # its dependencies are torch and half of CUDA
  echo "$wanted" >"$mark"
fi
echo "$directory/venv/bin/python"
