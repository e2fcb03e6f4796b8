#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rebuilds every plugin of this repository with the pinned TinyGo: <folder>/<folder's name>.wasm, which is committed.
# Usage: hack/plugins.sh [--check]      --check builds elsewhere and fails when a committed module is not what its sources give
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

check=
case ${1:-} in --check) check=1 ;; '') ;; *) die "usage: $0 [--check]" ;; esac
need_go
export REFRACT_TINYGO=pinned
hack/tinygo/build.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
stale=()
shopt -s nullglob
for main in plugins/*/main.go examples/plugins/*/main.go sdk/plugintest/*/main.go; do
  grep '^//go:build' "$main" | grep -qv wasip1 && continue # not for TinyGo
  dir=${main%/main.go} name=${main%/main.go} name=${name##*/}
  hack/tinygo/build-plugin.sh "$dir" "$scratch/$name.wasm"
  if [ -n "$check" ]; then
    cmp -s "$scratch/$name.wasm" "$dir/$name.wasm" || stale+=("$dir/$name.wasm")
  elif ! cmp -s "$scratch/$name.wasm" "$dir/$name.wasm"; then # an unchanged module keeps its time stamp
    install -m 0644 "$scratch/$name.wasm" "$dir/$name.wasm"
    echo "$dir/$name.wasm: $(stat -c %s "$dir/$name.wasm") bytes"
  fi
done
[ ${#stale[@]} -eq 0 ] || die "not what the sources give: ${stale[*]}" "run 'make plugins' and commit the result"
