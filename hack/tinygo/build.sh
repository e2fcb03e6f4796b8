#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the pinned TinyGo from the Go module proxy against Debian's LLVM 19, into the cache.
# Usage: hack/tinygo/build.sh      (nothing to do when it is there)
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
. "$ROOT/hack/tinygo/tinygo.sh"

[ -x "$TINYGO_DIR/bin/tinygo" ] && exit 0
need_go
need_apt "${TINYGO_PACKAGES[@]}"
mkdir -p "$TINYGO_DIR"
exec 9>"$TINYGO_DIR.lock"
flock 9
[ -x "$TINYGO_DIR/bin/tinygo" ] && exit 0

plugin_go_env
echo "fetching TinyGo $TINYGO_VERSION"
src=$(cd / && go mod download -json "github.com/tinygo-org/tinygo@$TINYGO_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
[ -d "$src" ] || die "the module proxy did not give TinyGo $TINYGO_VERSION"

# TinyGo wants a writable root with its own sources next to it; the module cache is read-only.
rm -rf "$TINYGO_DIR/root"
cp -r "$src" "$TINYGO_DIR/root"
chmod -R u+w "$TINYGO_DIR/root"
mkdir -p "$TINYGO_DIR/root/src/net" "$TINYGO_DIR/bin" # src/net is a git submodule, which module zips leave out; empty will do
cd "$TINYGO_DIR/root"

echo "compiling TinyGo"
CC=clang-19 CXX=clang++-19 CGO_ENABLED=1 CGO_CPPFLAGS=$(llvm-config-19 --cppflags) \
  go build -trimpath -tags llvm19 -ldflags "-s -w" -o "$TINYGO_DIR/bin/tinygo.partial" .
mv "$TINYGO_DIR/bin/tinygo.partial" "$TINYGO_DIR/bin/tinygo"
