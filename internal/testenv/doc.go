// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv starts real Kubernetes control planes on loopback in a few seconds, for tests, benchmarks and the demo.
//
// A Cluster is an etcd, an API server, a controller manager and a scheduler of the versions in hack/pins.env, plus simulated
// nodes by kwok when asked for. Nothing of it is faked up to the nodes: admission, RBAC, garbage collection, endpoints and
// scheduling are those of production. Pods on simulated nodes become Ready at once and run nothing; their logs are one
// fixed line, and commands of `kubectl exec` run on this machine, as nobody when the test runs as root.
//
//	clusters := testenv.ForTest(t, testenv.Options{Name: "consumer"}, testenv.Options{Name: "provider", KwokNodes: 3})
//
// # Real nodes
//
// With Options.Nodes a cluster has kubelets, containerd, kube-proxy and CoreDNS as well, each node on a machine made of namespaces (package
// machine); this takes root, and what `make node-tools` builds. The control plane is on the first machine, and a Link leads there. Images come
// from a Registry, Connect lets the pods of two clusters find each other.
//
//	clusters := testenv.NodesForTest(t, testenv.Options{Name: "rome", Nodes: 1}, testenv.Options{Name: "milan", Nodes: 1})
//
// # Ports
//
// Only the API server and kwok listen on ports of 127.0.0.1; etcd is behind a Unix socket, the controllers serve nothing.
// The API server's port is reserved for as long as the cluster lives (see reservation), so that any number of clusters start
// side by side, and an API server that was stopped to simulate an outage finds its port free.
//
// # Nothing is left behind
//
// Every process is tied to this one twice: by the kernel's parent-death signal, and by a watchdog that holds the other end of
// a pipe. Any end of the test or the demo, such as Ctrl-C or kill -9, removes the clusters and their state folders.
//
// # Limits
//
// This is about simulated nodes. Addresses of Services and pods lead nowhere: there is no network behind them. A simulated kubelet shows a certificate of the
// cluster's authority but asks its callers for none. The API server cannot proxy to pods and nodes on loopback, by its own rule;
// logs, exec, attach and port-forward work.
package testenv
