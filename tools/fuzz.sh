#!/usr/bin/env bash
# Builds the fuzz targets with libFuzzer and runs each for a time; exits 1 if one finds anything.
#
#   tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
targets=("$@")
if ((${#targets[@]} == 0)); then
  for seeds in tests/fuzz/corpus/*.txt; do targets+=("$(basename "$seeds" .txt)"); done
fi
configured=$(cmake --preset fuzz 2>&1) || {
  echo "$configured"
  exit 1
}
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz_}"
found=build/fuzz/found
mkdir -p "$found"
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  # A file for each seed, as libFuzzer wants them; what earlier runs added stays.
  python3 - "tests/fuzz/corpus/$target.txt" "$corpus" <<'PYTHON'
import pathlib, sys
for number, line in enumerate(pathlib.Path(sys.argv[1]).read_bytes().split(b"\n")[:-1]):
    seed = line.decode("latin-1").encode("latin-1").decode("unicode_escape").encode("latin-1")
    (pathlib.Path(sys.argv[2]) / f"seed{number:04}").write_bytes(seed)
PYTHON
  echo "fuzz_$target: $seconds s"
  log=build/fuzz/$target.log
  if ! "build/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
    -artifact_prefix="$found/$target-" "$corpus" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz_$target found something: $found/$target-*"
    exit 1
  fi
  tail -n 1 "$log"
done
