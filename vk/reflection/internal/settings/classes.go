// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package settings

// APIServer describes how offloaded pods reach this cluster's API server.
type APIServer struct {
	Host string   // host name; if empty, kubernetes.default, which a host alias resolves
	Port string   // port; if empty, 443
	IPs  []string // addresses for the host alias, in addition to the addresses from IP resources
	// Domain is the DNS domain of this cluster, which is a part of the API server's host name. If it is empty,
	// cluster.local is used.
	Domain string
}

// Classes contains the provider's ingress class and load balancer class. They are used if the VirtualNode does not list
// any. If a class is empty, the provider's default class is used.
type Classes struct{ Ingress, LoadBalancer string }

// Storage determines whether claims get volumes on the provider, and how.
type Storage struct {
	Enabled bool   // whether claims of the virtual class get new volumes; existing volumes are always maintained
	Class   string // name of the virtual storage class; if empty, wire.DefaultStorageClass
	// RemoteClass is the provider's storage class. It is used if the VirtualNode does not list any storage class. If it
	// is empty, the provider's default storage class is used.
	RemoteClass string
}
