#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh writes everything that is generated from Go types: deepcopy
# methods, CRDs, and the chart's copies of CRDs and roles. The same input gives
# the same bytes, so CI runs it and fails when git sees a difference.
set -euo pipefail
cd "$(dirname "$0")/.."

header=hack/codegen/header.go.txt
controller_gen() {
	GOWORK=off go -C hack/codegen build -o "$work/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
	"$work/controller-gen" "$@"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

controller_gen paths=./api/... object:headerFile="$header" \
	crd:maxDescLen=512 output:crd:dir="$work/crds"

# The old files go first: a CRD whose type was removed must not stay behind.
rm -f api/crds/*.yaml
for file in "$work"/crds/*.yaml; do
	{ sed 's|^// |# |' "$header"; cat "$file"; } >"api/crds/$(basename "$file")"
done
