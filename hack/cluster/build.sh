#!/usr/bin/env bash
# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds one binary of the test clusters from the Go module proxy, into the cache.
# Usage: hack/cluster/build.sh kube-apiserver|kube-controller-manager|kube-controller-manager-prompt|kube-scheduler|kubectl|etcd|etcdutl|kwok
#        of Liqo: crd-replicator|liqo-controller-manager|liqoctl|liqo-virtual-kubelet|liqo-webhook|uninstaller|liqo-gateway|liqo-wireguard|wireguard-go
#        of Kubernetes' end-to-end tests: e2e.test, and the programs of its images agnhost|nonewprivs
#        of real nodes: kubelet|kube-proxy|containerd|containerd-shim-runc-v2|runc|bridge|loopback|host-local|portmap|coredns|metrics-server
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

name=${1:?which binary?}
ldflags="-s -w" cgo=0 tags= build=(build)
case $name in
  kube* | e2e.test | agnhost | nonewprivs)
    component=kubernetes package=k8s.io/kubernetes/cmd/$name
    case $name in
      e2e.test) package=k8s.io/kubernetes/test/e2e build=(test -c -vet=off) ;;
      agnhost | nonewprivs) package=k8s.io/kubernetes/test/images/$name ;;
      *-prompt) package=${package%-prompt} ;;
    esac
    minor=${KUBERNETES_VERSION#v1.} minor=${minor%%.*}
    for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
      ldflags+=" -X $pkg.gitVersion=$KUBERNETES_VERSION -X $pkg.gitMajor=1 -X $pkg.gitMinor=$minor"
    done
    ;;
  etcd) component=etcd package=go.etcd.io/etcd/server/v3 ;;
  etcdutl) component=etcd package=go.etcd.io/etcd/etcdutl/v3 ;;
  kwok) component=kwok package=sigs.k8s.io/kwok/cmd/kwok ldflags+=" -X sigs.k8s.io/kwok/pkg/consts.Version=$KWOK_VERSION" ;;
  containerd*) component=containerd package=github.com/containerd/containerd/v2/cmd/$name tags=no_btrfs,no_devmapper,no_zfs
    ldflags+=" -X github.com/containerd/containerd/v2/version.Version=$CONTAINERD_VERSION" ;;
  # RuntimeDefault seccomp profiles are libseccomp's.
  runc) component=runc package=github.com/opencontainers/runc cgo=1 tags=seccomp ldflags+=" -X main.version=${RUNC_VERSION#v}" ;;
  bridge | loopback) component=cni package=github.com/containernetworking/plugins/plugins/main/$name ;;
  host-local) component=cni package=github.com/containernetworking/plugins/plugins/ipam/$name ;;
  portmap) component=cni package=github.com/containernetworking/plugins/plugins/meta/$name ;;
  coredns) component=coredns package=github.com/coredns/coredns ;;
  metrics-server) component=metricsserver package=sigs.k8s.io/metrics-server/cmd/metrics-server ;;
  liqo-gateway) component=liqo package=github.com/liqotech/liqo/cmd/gateway ;;
  liqo-wireguard) component=liqo package=github.com/liqotech/liqo/cmd/gateway/wireguard ;;
  wireguard-go) component=liqo package=golang.zx2c4.com/wireguard ;;
  crd-replicator | uninstaller | liqo*) component=liqo package=github.com/liqotech/liqo/cmd/${name/#liqo-[vw]/${name:5:1}} ldflags+=" -X github.com/liqotech/liqo/pkg/liqoctl/version.LiqoctlVersion=$LIQO_VERSION" ;;
  *) die "unknown binary $name" ;;
esac

# The pins are what the cache folder is named after: a go.mod that says something else would fill it with the wrong thing.
version=${component^^}_VERSION
module=$ROOT/hack/cluster/$component
grep -qE "^require [^ ]+ ${!version}$|^	[^ ]+ ${!version}$" "$module/go.mod" ||
  die "hack/pins.env says $component ${!version}, $module/go.mod does not" "change both, run 'go mod tidy' there, and commit"

dir=$(tool_dir "$component")
mkdir -p "$dir"
exec 9>"$dir.lock" # another checkout may be building the same
flock 9
[ -x "$dir/$name" ] && exit 0

# promptly copies the sources of Kubernetes, shortens fixed delays of kube-controller-manager in the copy, and prints the go.mod that
# replaces the sources with it. A namespace is deleted without the delay for further API servers and members of etcd, of which a test
# cluster has none. New CRDs are known to the garbage collector and to quotas after a second. Everything else is as released.
promptly() {
  local sources file from to
  sources=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
  [ -n "$sources" ] || { go mod download k8s.io/kubernetes && sources=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes); }
  mkdir "$1/kubernetes"
  cp -r --no-preserve=mode "$sources"/{cmd,pkg,plugin,third_party,go.mod} "$1/kubernetes"
  while IFS='|' read -r file from to; do
    [ "$(grep -cF "$from" "$1/kubernetes/$file")" = 1 ] || die "$file of Kubernetes $KUBERNETES_VERSION does not have exactly one line with: $from" "change ${BASH_SOURCE[0]}"
    sed -i "s|${from//\*/\\*}|$to|" "$1/kubernetes/$file"
    grep -qF "$to" "$1/kubernetes/$file" || die "$file was not changed to: $to"
  done <<'END'
pkg/controller/namespace/namespace_controller.go|namespaceDeletionGracePeriod = 5 * time.Second|namespaceDeletionGracePeriod = 100 * time.Millisecond
cmd/kube-controller-manager/app/core.go|const syncPeriod = 30 * time.Second|const syncPeriod = time.Second
cmd/kube-controller-manager/app/core.go|Sync(ctx, discoveryFunc, 30*time.Second)|Sync(ctx, discoveryFunc, time.Second)
cmd/kube-controller-manager/app/controllermanager.go|}, 30*time.Second, ctx.Done())|}, time.Second, ctx.Done())
END
  cp go.mod go.sum "$1"
  go mod edit -replace "k8s.io/kubernetes=$1/kubernetes" "$1/go.mod"
  echo "$1/go.mod"
}

# The platform is this machine's, whatever the environment cross-compiles for; GOFLAGS is non-empty to overrule `go env -w`.
unset GOOS GOARCH
export CGO_ENABLED=$cgo GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false"
cd "$module"
if [ "$name" = kwok ]; then # the life of simulated nodes and pods, as kwok itself ships it
  stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)
  [ -n "$stages" ] || { go mod download sigs.k8s.io/kwok && stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok); }
  for f in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease \
    pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
    printf -- '---\n'
    cat "$stages/kustomize/stage/$f.yaml"
  done >"$dir/stages.yaml"
fi
if [ "$component" = liqo ] && [ ! -d "$dir/chart" ]; then
  source=$(go list -m -f '{{.Dir}}' github.com/liqotech/liqo)
  [ -n "$source" ] || { go mod download github.com/liqotech/liqo && source=$(go list -m -f '{{.Dir}}' github.com/liqotech/liqo); }
  cp -r "$source/deployments/liqo" "$dir/chart.partial"
  chmod -R u+w "$dir/chart.partial"
  mv "$dir/chart.partial" "$dir/chart"
fi
if [ "$name" = kube-controller-manager-prompt ]; then
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  build+=("-modfile=$(promptly "$copy")")
fi
go "${build[@]}" -trimpath -tags "$tags" -ldflags "$ldflags" -o "$dir/$name.partial" "$package"
mv "$dir/$name.partial" "$dir/$name"
