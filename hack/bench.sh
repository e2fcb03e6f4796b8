#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh [rounds]: the benchmarks of the WebAssembly host, then the ratios of their rows. The least of several rounds
# counts: what else the machine does only ever adds.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go

cd "$ROOT"
# A row that is missing, or misses its goal, ends this with 1.
go test -run '^$' -bench '^Benchmark(Host|Unit|SecondPlugin)$' -benchmem -benchtime 300ms -count "${1:-6}" ./host | awk '
  { print; fflush() }
  /^Benchmark(Host|Unit|SecondPlugin)\// {
    name = $1; sub(/^Benchmark[A-Z][A-Za-z]+\//, "", name); sub(/-[0-9]+$/, "", name)
    for (i = 2; i < NF; i++) {
      if (($(i + 1) == "cpu-ns/op" || $(i + 1) == "extra-ns") && (!(name in least) || $i < least[name])) least[name] = $i
      if ($(i + 1) == "fuel/op") fuel[name] = $i
      if ($(i + 1) == "allocs/op" && $i > allocations[name]) allocations[name] = $i
    }
  }
  function of(name) {
    if (name in least) return least[name]
    print "there is no row " name; failed = 1
    return 1
  }
  function row(what, value, unit, goal) {
    verdict = ""
    if (goal != "") { verdict = value + 0 <= goal ? "met" : "missed"; if (verdict == "missed") failed = 1; goal = "≤ " goal unit }
    printf "%-52s %10s%s   %s   %s\n", what, value, unit, goal, verdict
  }
  # unit prints the time for a unit, and notes the extremes of a group and of all.
  function unit(group, what, name,   one) {
    if (!(name in fuel)) return of(name)
    one = of(name) / fuel[name] / (of("loop-tinygo") / fuel["loop-tinygo"])
    extremes(group, one); extremes("all", one)
    row(what, sprintf("%.2f", one), "", "")
  }
  function extremes(group, one) {
    if (!(group in dearest) || one > dearest[group]) dearest[group] = one
    if (!(group in cheapest) || one < cheapest[group]) cheapest[group] = one
  }
  function spread(group) { return group in dearest ? sprintf("%.1f", dearest[group] / cheapest[group]) : "none" }
  function percent(a, b) { return sprintf("%.1f", 100 * (of(a) / of(b) - 1)) }
  END {
    print "\nLEAST OF ALL ROUNDS, processor time"
    # Goals are ratios of one run: machines differ by more than any of these margins.
    row("yardstick: a call by the engine alone", of("noop-engine"), " ns", "")
    row("exported no-op with fuel, against that", sprintf("%.2f", of("noop") / of("noop-engine")), "", 2.5)
    row("the same with document, pool and guard, against it", sprintf("%.2f", of("noop-chain") / of("noop-engine")), "", "")
    row("Service", of("service"), " ns", "")
    row("Service, allocations", allocations["service"] + 0, "", 0)
    row("Pod", of("pod"), " ns", "")
    row("Pod, allocations", allocations["pod"] + 0, "", 0)
    row("Service, a second plugin that does nothing", sprintf("%.0f", of("second-service")), " ns", "")
    row("the same, allocations", allocations["second-service"] + 0, "", 0)
    row("Pod, a second plugin that does nothing", sprintf("%.0f", of("second-pod")), " ns", "")
    row("the same, allocations", allocations["second-pod"] + 0, "", 0)
    row("the same, against document, pool and guard alone", sprintf("%.1f", of("second-pod") / of("noop-chain")), "", 4)
    row("Service, fuel on top of none", percent("service", "service-bare"), " %", 5)
    row("Pod, fuel on top of none", percent("pod", "pod-bare"), " %", 5)
    row("Service with a 200 KB annotation on top of without", percent("service-200k", "service"), " %", 5)
    row("Service, plugin against native Go on a copy", sprintf("%.2f", of("service") / of("service-native")), "", 0.45)
    row("Pod, plugin against native Go on a copy", sprintf("%.2f", of("pod") / of("pod-native")), "", 0.7)
    row("Service, from one namespace to another at each call", sprintf("%.2f", of("service-domains") / of("service")), "", "")
    row("Service, with a clean slate at each call", sprintf("%.2f", of("service-fresh") / of("service")), "", "")
    print "\nTIME FOR A UNIT OF FUEL, against that of a tight loop that TinyGo has compiled"
    row("yardstick: a unit of that loop", sprintf("%.2f", of("loop-tinygo") / (("loop-tinygo" in fuel) ? fuel["loop-tinygo"] : 1)), " ns", "")
    number = split("loop jsons format match", code, " "); split("a tight loop,encoding/json,fmt,regexp", what, ",")
    for (i = 1; i <= number; i++) { unit("tinygo", what[i] ", TinyGo", code[i] "-tinygo"); unit("go", what[i] ", Go", code[i] "-go") }
    number = split("Service Pod EndpointSlice", code, " ")
    for (i = 1; i <= number; i++) unit("tinygo", "default plugin " code[i] ", with its calls of the host", "plugin-" code[i])
    row("dearest against cheapest: TinyGo, default plugins", spread("tinygo"), "", 3)
    row("dearest against cheapest: Go", spread("go"), "", 3)
    row("dearest against cheapest: all", spread("all"), "", "")
    exit failed
  }'
