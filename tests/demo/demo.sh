#!/usr/bin/env bash
# The demo must end by itself, with 0, having said what it promises; and leave nothing behind.
#
#   tests/demo/demo.sh [BUILD]     BUILD holds weighlock, tinyengine and tinytrainer (build/release)
set -euo pipefail
build=${1:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "demo: $*" >&2; cat "$work/out" >&2; exit 1; }

export TMPDIR=$work
timeout 120 "$build/weighlock" demo >"$work/out" 2>"$work/err" || {
  code=$?
  cat "$work/err" >&2
  fail "ended with $code"
}
for version in 1 2 3 4 5 7; do
  succeeded="^pair demo v$version: succeeded, 3 of 3 workers, paused [0-9]"
  grep -q "$succeeded" "$work/out" || fail "v$version didn't succeed on all engines"
done
grep -q "^pair demo v6: degraded, 2 of 3 workers" "$work/out" || fail "v6 wasn't degraded"
grep -q "to do: " "$work/out" || fail "the failure has no remedy"
rollouts="^meanwhile [1-9][0-9]* generations completed, [0-9]+ were cut short by a pause, 0 failed"
grep -Eq "$rollouts" "$work/out" || fail "generations failed"
left=$(find "$work" -mindepth 1 ! -name out ! -name err | head -3)
[ -z "$left" ] || fail "left behind: $left"
tail -3 "$work/out"
