# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds or builds TinyGo; sourced by build.sh and build-plugin.sh after hack/lib.sh.
# shellcheck shell=bash

TINYGO_DIR=$(tool_dir tinygo)
TINYGO_PACKAGES=(clang-19 llvm-19-dev lld-19 libclang-19-dev wasi-libc libclang-rt-19-dev-wasm32 binaryen)

# tinygo_on_path: prints the path of a released TinyGo 0.41.x, fails when there is none.
tinygo_on_path() {
  local t
  t=$(command -v tinygo) || return 1
  case $("$t" version 2>/dev/null) in "tinygo version 0.41."*) echo "$t" ;; *) return 1 ;; esac
}

# plugin_go_env: the settings under which a plugin compiles to the same bytes everywhere. A non-empty GOFLAGS is needed to
# overrule `go env -w`. An other Go release than the pinned one brings another standard library.
plugin_go_env() {
  unset GOOS GOARCH GOEXPERIMENT GOROOT
  export GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false"
  if GOTOOLCHAIN=$PLUGIN_GO_VERSION go version >/dev/null 2>&1; then
    export GOTOOLCHAIN=$PLUGIN_GO_VERSION
  else
    echo "warning: $PLUGIN_GO_VERSION is not to be had here, using $(go env GOVERSION): the .wasm may differ from the committed one" >&2
  fi
}
