#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Compiles a plugin to WebAssembly with TinyGo.
# Usage: hack/tinygo/build-plugin.sh <package dir> <out.wasm>
# A TinyGo 0.41.x on PATH is used, else the pinned one is built (once). REFRACT_TINYGO=pinned insists on the pinned one: the
# committed modules are its output, byte for byte, on every machine.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$ROOT/hack/tinygo/tinygo.sh"

[ $# -eq 2 ] || die "usage: $0 <package dir> <out.wasm>"
[ -d "$1" ] || die "$1 is not a folder" "name the folder that holds the plugin's main.go"
pkg=$(cd "$1" && pwd)
out=$(realpath -m "$2")

if [ "${REFRACT_TINYGO:-}" != pinned ] && tinygo=$(tinygo_on_path); then
  target=(-target=wasip1 -scheduler=none)
else
  "$ROOT/hack/tinygo/build.sh"
  tinygo=$TINYGO_DIR/bin/tinygo target=("-target=$ROOT/hack/tinygo/wasip1.json")
  export TINYGOROOT=$TINYGO_DIR/root
fi
plugin_go_env

cd "$pkg"
partial=$(mktemp "${TMPDIR:-/tmp}/refract-plugin-XXXXXX.wasm")
trap 'rm -f "$partial"' EXIT
"$tinygo" build "${target[@]}" -buildmode=c-shared -no-debug -opt=2 -o "$partial" .
# Into place in one move (a running kubelet may watch the folder), readable by all.
mkdir -p "$(dirname "$out")"
install -m 0644 "$partial" "$out.partial"
mv "$out.partial" "$out"
