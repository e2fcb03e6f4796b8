#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# test-chart.sh: lints and renders charts/refract with Helm's library and tries the result on a real API server.
# With --vet it runs go vet on these tests instead.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_go

# hack/helm requires the root module as it is in the work tree. What that one requires changes more often than the chart:
# the requirements are brought up to date in a copy, so that a commit there need not touch hack/helm.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$ROOT"/hack/helm/go.{mod,sum} "$work"

if [ "${1:-}" = --vet ]; then
  go -C "$ROOT/hack/helm" vet -mod=mod -modfile="$work/go.mod" ./...
  exit
fi
# -count=1: go test does not notice changes of files outside its own module.
go -C "$ROOT/hack/helm" test -mod=mod -modfile="$work/go.mod" -count=1 "$@" ./...
