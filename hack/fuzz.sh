#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh [time [folder]]: fuzzes every target below the folder (default: all) for that long, or that often (default 30s; 1000x),
# and tells how often each was executed. What fails is kept by go test below testdata/fuzz of its package.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go
cd "$ROOT"

time=${1:-30s} folder=${2:-.}
total=0 status=0
while IFS=: read -r file _ line; do
  target=${line#func }
  target=${target%%(*}
  package=./${file%/*}
  log=$(mktemp)
  if go test "$package" -run '^$' -fuzz "^$target$" -fuzztime "$time" -fuzzminimizetime 5s >"$log" 2>&1 </dev/null; then
    verdict=ok
  elif grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|_test\.go' "$log"; then
    verdict=ok # the time was up while an input was running, which go test takes for a failure
  else
    verdict=FAILED status=1
  fi
  executions=$(grep -oE 'execs: [0-9]+' "$log" | tail -1 | grep -oE '[0-9]+' || echo 0)
  total=$((total + executions))
  printf '%-28s %-32s %12s executions   %s\n' "$package" "$target" "$executions" "$verdict"
  [ "$verdict" = ok ] || tail -40 "$log" >&2
  rm -f "$log"
done < <(git grep -nE '^func Fuzz' -- "$folder" | grep "_test.go:")
printf '%-61s %12s executions in all\n' '' "$total"
exit $status
