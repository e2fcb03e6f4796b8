// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"net/netip"
)

// Services describes Services that exist for some pods of a node only. Each pod has an owner, and reaches the Services of
// its owner. Different owners may use the same addresses for different Services. Packets from other addresses are not
// changed.
type Services struct {
	// Pods contains the owner of each pod by its IPv4 address.
	Pods map[netip.Addr]string
	// Ports contains the endpoints of each port of a Service.
	Ports map[ServicePort]Backends
}

// ServicePort is a port of a Service of the given owner.
type ServicePort struct {
	Owner    string
	Address  netip.Addr
	Protocol uint8
	Port     uint16
}

// Backends contains the endpoints of a port of a Service.
type Backends struct {
	// Endpoints are the endpoints, in an order that is the same on all nodes. If there are none, connections are rejected.
	Endpoints []netip.AddrPort
	// Sticky sends all connections of a client to the same endpoint, as long as the endpoints do not change. Otherwise, the
	// endpoint is chosen at random.
	Sticky bool
}
