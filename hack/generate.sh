#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# generate.sh [--check]: writes everything that comes from Go sources: the lists of default kinds, deepcopy methods, CRDs and their reference, the table of
# durations, and the chart's copies of CRDs and roles. The same sources give the same bytes. With --check it fails when what was there before is different.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

header=hack/codegen/header.go.txt
outputs=(controllers/virtualnode/forge.go api/plugins/v1alpha1/reflectedresource.go api/offloading/v1beta1/vkoptionstemplate.go charts/refract/values.yaml
  charts/refract/values.schema.json api/*/*/zz_generated.deepcopy.go api/crds charts/refract/crds charts/refract/files/network charts/refract/files/rbac docs/crds.md docs/durations.md)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

snapshot() { # snapshot DIR: keeps a copy of all outputs
  mkdir -p "$1"
  cp -r --parents "${outputs[@]}" "$1"
}

generate() {
  need_go
  go run ./hack/kinds .
  go -C hack/codegen build -o "$work/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
  "$work/controller-gen" paths=./api/... "object:headerFile=$header" crd:maxDescLen=512 "output:crd:dir=$work/crds"

  # The old files go first: the CRD or role of something that was removed must not stay behind.
  rm -f api/crds/*.yaml api/crds/network/*.yaml charts/refract/crds/*.yaml charts/refract/files/network/*.yaml charts/refract/files/rbac/*.yaml
  local folder
  for file in "$work"/crds/*.yaml; do
    case $file in
      # The chart has objects of these kinds, so Helm has to install their CRDs first.
      */networking.liqo.io_wggateway*templates.yaml) folder=api/crds ;;
      */networking.liqo.io_* | */ipam.liqo.io_*) folder=api/crds/network ;;
      *) folder=api/crds ;;
    esac
    { sed 's|^// |# |' "$header"; cat "$file"; } >"$folder/$(basename "$file")"
  done
  cp api/crds/*.yaml charts/refract/crds/
  cp api/crds/network/*.yaml charts/refract/files/network/
  go run ./internal/rbac/rbacgen charts/refract/files/rbac
  go run ./hack/crdref api >"$work/crds.md"
  cp "$work/crds.md" docs/crds.md
  go run ./hack/durations . >"$work/durations.md"
  cp "$work/durations.md" docs/durations.md
}

if [ "${1:-}" != --check ]; then
  generate
  exit
fi
snapshot "$work/before"
generate
snapshot "$work/after"
diff -ru "$work/before" "$work/after" >&2 || die "generated files are stale" "commit what 'make generate' writes"
