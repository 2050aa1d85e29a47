#!/usr/bin/env bash
# Builds the pure modules' tests, the fault suite and the fuzz targets with another preset (clang, asan), and runs them;
# the targets over their seeds.
#
#   tools/check_preset.sh PRESET [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
jobs=${2:-$(nproc)}

configured=$(cmake --preset "$preset" 2>&1) || {
  echo "$configured"
  exit 1
}
# Only modules that have tests have a target; the fault suite must be there.
known=$(ninja -C "build/$preset" -t targets all)
targets=(fault_test)
for module in core tensor reshard protocol engines trainers awex; do
  if grep -q "^${module}_test:" <<<"$known"; then targets+=("${module}_test"); fi
done
for target in $(grep -o '^fuzz_[a-z_]*:' <<<"$known" | tr -d : | sort -u); do targets+=("$target"); done
echo "building ${targets[*]}"
cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}"
names=$(
  IFS='|'
  echo "${targets[*]}"
)
ctest --test-dir "build/$preset" -R "^(${names})" -j "$jobs" --output-on-failure --no-tests=error
