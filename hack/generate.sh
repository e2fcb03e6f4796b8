#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [--check]: writes everything that comes from Go sources: deepcopy methods, CRDs and their reference, and the
# chart's copies of CRDs and roles. The same sources give the same bytes. With --check it fails when what was there before is different.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

header=hack/codegen/header.go.txt
outputs=(api/*/*/zz_generated.deepcopy.go api/crds charts/refract/crds charts/refract/files/rbac docs/crds.md)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

snapshot() { # snapshot DIR: keeps a copy of all outputs
  mkdir -p "$1"
  cp -r --parents "${outputs[@]}" "$1"
}

generate() {
  need_go
  go -C hack/codegen build -o "$work/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
  "$work/controller-gen" paths=./api/... "object:headerFile=$header" crd:maxDescLen=512 "output:crd:dir=$work/crds"

  # The old files go first: the CRD or role of something that was removed must not stay behind.
  rm -f api/crds/*.yaml charts/refract/crds/*.yaml charts/refract/files/rbac/*.yaml
  for file in "$work"/crds/*.yaml; do
    { sed 's|^// |# |' "$header"; cat "$file"; } >"api/crds/$(basename "$file")"
  done
  cp api/crds/*.yaml charts/refract/crds/
  go run ./internal/rbac/rbacgen charts/refract/files/rbac
  go run ./hack/crdref api >"$work/crds.md"
  cp "$work/crds.md" docs/crds.md
}

if [ "${1:-}" != --check ]; then
  generate
  exit
fi
snapshot "$work/before"
generate
snapshot "$work/after"
diff -ru "$work/before" "$work/after" >&2 || die "generated files are stale" "commit what 'make generate' writes"
