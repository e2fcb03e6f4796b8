// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package settings

// APIServer is the address of this cluster's API server as offloaded pods see it.
type APIServer struct {
	Host string   // empty: kubernetes.default, which a host alias resolves
	Port string   // empty: 443
	IPs  []string // IPs of the host alias, in addition to the IPs from IP resources
	// Domain is the DNS domain of this cluster, which is a part of the API server's name. If it is empty,
	// cluster.local is used.
	Domain string
}

// Classes are the provider's ingress class and load balancer class that are used if the VirtualNode does not list
// any. If a class is empty, the provider uses its default class.
type Classes struct{ Ingress, LoadBalancer string }

// Storage determines whether and how claims get their volumes on the provider.
type Storage struct {
	Enabled bool   // claims of the virtual class get new volumes; existing volumes are always maintained
	Class   string // the virtual storage class; empty: wire.DefaultStorageClass
	// RemoteClass is the provider's storage class that is used if the VirtualNode does not list any storage class. If
	// it is empty, the provider uses its default storage class.
	RemoteClass string
}
