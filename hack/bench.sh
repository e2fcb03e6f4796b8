#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh [rounds]: the benchmarks of the WebAssembly host, then the ratios of their rows. The least of several rounds
# counts: what else the machine does only ever adds.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go

cd "$ROOT"
go test -run '^$' -bench '^BenchmarkHost$' -benchmem -benchtime 300ms -count "${1:-6}" ./host | tee >(awk '
  /^BenchmarkHost\// {
    name = $1; sub(/^BenchmarkHost\//, "", name); sub(/-[0-9]+$/, "", name)
    for (i = 2; i < NF; i++) if ($(i + 1) == "cpu-ns/op" && (!(name in least) || $i < least[name])) least[name] = $i
  }
  function row(what, value, goal) { printf "%-52s %10s   %s\n", what, value, goal }
  function percent(a, b) { return sprintf("%+.1f %%", 100 * (a / b - 1)) }
  END {
    print ""
    row("LEAST OF ALL ROUNDS, processor time", "", "GOAL")
    row("exported no-op, the call with fuel", least["noop"] " ns", "30 ns")
    row("the same with document, pool and guard", least["noop-chain"] " ns", "")
    row("Service", least["service"] " ns", "1000 ns")
    row("Pod", least["pod"] " ns", "20000 ns")
    row("Service, fuel against none", percent(least["service"], least["service-bare"]), "5 %")
    row("Pod, fuel against none", percent(least["pod"], least["pod-bare"]), "5 %")
    row("Service with a 200 KB annotation against without", percent(least["service-200k"], least["service"]), "no growth")
    row("Service, plugin against native Go on a copy", sprintf("%.2f", least["service"] / least["service-native"]), "")
    row("Pod, plugin against native Go on a copy", sprintf("%.2f", least["pod"] / least["pod-native"]), "")
  }' >&2)
wait
