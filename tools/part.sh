#!/usr/bin/env bash
# Runs one part of a make target, says what it is and what it took, and notes that in build/parts.txt.
#
#   tools/part.sh "unit tests" ctest ...      the exit code is the command's
#   tools/part.sh --summary                   all parts noted so far
set -uo pipefail
cd "$(dirname "$0")/.."
notes=build/parts.txt

if [ "${1:-}" = --summary ]; then
  echo "== what each part took"
  cat "$notes"
  exit 0
fi

title=$1
shift
printf '== %s\n' "$title"
began=$(date +%s.%N)
"$@"
code=$?
took=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}')
if [ $code -eq 0 ]; then outcome=ok; else outcome="failed ($code)"; fi
printf '== %s: %s, %s s\n' "$title" "$outcome" "$took"
mkdir -p build
printf '%8s s  %-12s %s\n' "$took" "$outcome" "$title" >>"$notes"
exit $code
