// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxy has proxies between the clients and the API servers of a test, with which the test causes failures of
// the network: a Link can be cut, stalled, slow or lossy; a Cable can be cut or unplugged; a Balancer keeps clients
// waiting while all servers are down.
package proxy
