#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the pinned tools that are not in the cache yet: the test control planes and TinyGo (`make tools`), with --nodes also what real
# nodes consist of (`make node-tools`), with --liqo Liqo (`make liqo-tools`), with --conformance Kubernetes' end-to-end tests (`make conformance-tools`).
# Usage: hack/tools.sh [--nodes|--liqo|--conformance]   REFRACT_CACHE=<dir> puts the cache elsewhere (default ~/.cache/refract)
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$ROOT/hack/tinygo/tinygo.sh"

need_go
command -v gcc >/dev/null || need_apt gcc libc6-dev # for TinyGo, and for the race detector

missing=()
for name in kube-apiserver kube-controller-manager kube-controller-manager-prompt kube-scheduler kubectl; do
  [ -x "$(tool_dir kubernetes)/$name" ] || missing+=("$name")
done
for name in etcd etcdutl; do
  [ -x "$(tool_dir etcd)/$name" ] || missing+=("$name")
done
[ -x "$(tool_dir kwok)/kwok" ] || missing+=(kwok)
if [ "${1:-}" = --nodes ]; then
  # Programs that nodes call: kube-proxy and the network of pods, their images, and what runc is linked to.
  need_apt iproute2 util-linux nftables busybox-static libseccomp-dev pkg-config
  for name in kubernetes/kubelet kubernetes/kube-proxy containerd/containerd containerd/containerd-shim-runc-v2 runc/runc \
    cni/bridge cni/loopback cni/host-local cni/portmap coredns/coredns metricsserver/metrics-server; do
    [ -x "$(tool_dir "${name%/*}")/${name#*/}" ] || missing+=("${name#*/}")
  done
fi
if [ "${1:-}" = --liqo ]; then
  for name in crd-replicator liqo-controller-manager liqo-virtual-kubelet liqo-webhook liqoctl uninstaller liqo-gateway liqo-wireguard wireguard-go; do
    [ -x "$(tool_dir liqo)/$name" ] || missing+=("$name")
  done
fi
if [ "${1:-}" = --conformance ]; then
  # Programs that the images of the suite have beside busybox.
  need_apt bash bind9-dnsutils curl iproute2 libc-bin netcat-openbsd util-linux
  for name in e2e.test agnhost nonewprivs; do
    [ -x "$(tool_dir kubernetes)/$name" ] || missing+=("$name")
  done
fi
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
    step $n "$total" "$name" "$ROOT/hack/cluster/build.sh" "$name"
  fi
done

echo "tools: Kubernetes $KUBERNETES_VERSION, etcd $ETCD_VERSION, kwok $KWOK_VERSION in $REFRACT_CACHE/tools; $tinygo"
