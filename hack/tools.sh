#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the pinned tools that are not in the cache yet: the test control planes and TinyGo (`make tools`).
# Usage: hack/tools.sh             REFRACT_CACHE=<dir> puts the cache elsewhere (default ~/.cache/refract)
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$ROOT/hack/tinygo/tinygo.sh"

need_go
command -v gcc >/dev/null || need_apt gcc libc6-dev # for TinyGo, and for the race detector

missing=()
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  [ -x "$(tool_dir kubernetes)/$name" ] || missing+=("$name")
done
for name in etcd etcdutl; do
  [ -x "$(tool_dir etcd)/$name" ] || missing+=("$name")
done
[ -x "$(tool_dir kwok)/kwok" ] || missing+=(kwok)
if ! tinygo=$(tinygo_on_path); then
  tinygo=$TINYGO_DIR/bin/tinygo
  [ -x "$tinygo" ] || missing+=(tinygo)
fi

total=${#missing[@]}
if [ "$total" -gt 0 ]; then
  need_disk 4 "$REFRACT_CACHE"
  need_disk 6 "$(go env GOCACHE)"
  echo "building $total tools into $REFRACT_CACHE/tools (kept for later runs; about 7 minutes for all on two cores)"
fi
n=0
for name in "${missing[@]}"; do
  n=$((n + 1))
  if [ "$name" = tinygo ]; then
    need_apt "${TINYGO_PACKAGES[@]}"
    step $n "$total" "$name" "$ROOT/hack/tinygo/build.sh"
  else
    step $n "$total" "$name" "$ROOT/hack/controlplane/build.sh" "$name"
  fi
done

echo "tools: Kubernetes $KUBERNETES_VERSION, etcd $ETCD_VERSION, kwok $KWOK_VERSION in $REFRACT_CACHE/tools; $tinygo"
