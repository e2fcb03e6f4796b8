// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv starts real Kubernetes control planes on loopback in a few seconds, for tests, benchmarks and the
// demo.
//
// A Cluster has an etcd, an API server, a controller manager and a scheduler of the versions in hack/pins.env, and
// optionally nodes simulated by kwok. Nothing except the nodes is simulated: admission, RBAC, garbage collection,
// endpoints and scheduling work as in production. Pods on simulated nodes become Ready at once, but run no
// containers. Their logs are one fixed line. Commands of `kubectl exec` run on this machine; if the test runs as
// root, they run as the user nobody. Without real nodes, the controller manager is built with shorter delays
// (hack/cluster/build.sh): it deletes a namespace at once instead of after five seconds, and collects garbage of a
// new CRD after one second instead of 30.
//
//	clusters := testenv.ForTest(t, testenv.Options{Name: "consumer"}, testenv.Options{Name: "provider", KwokNodes: 3})
//
// # Real nodes
//
// With Options.Nodes, a cluster also has real nodes with a kubelet, containerd and kube-proxy, and CoreDNS. Each node
// is a machine made of Linux namespaces (package machine). This requires root, and the output of `make node-tools`.
// The control plane is on the first machine, and a Link connects to it. Images are pulled from a Registry. Connect
// routes packets between the pods of two clusters.
//
//	clusters := testenv.NodesForTest(t, testenv.Options{Name: "rome", Nodes: 1}, testenv.Options{Name: "milan", Nodes: 1})
//
// # Ports
//
// Only the API server and kwok listen on ports of 127.0.0.1. etcd listens on a Unix socket, and the controllers do
// not listen at all. The API server's port is reserved for the lifetime of the cluster (see ports.Reservation). So any
// number of clusters can be started at the same time, and an API server that was stopped to simulate an outage can
// use its port again.
//
// # Nothing is left behind
//
// Every process is tied to this process in two ways: by the kernel's parent-death signal, and by a watchdog that
// holds the other end of a pipe. However the test or the demo ends, for example by Ctrl-C or kill -9, the clusters
// and their state folders are removed.
//
// # Limits
//
// These limits apply to simulated nodes. Addresses of Services and pods cannot be reached, because there is no
// network behind them. A simulated kubelet has a certificate of the cluster's CA but requires no client certificate.
// The API server refuses to proxy to pods and nodes on loopback. logs, exec, attach and port-forward work.
package testenv
