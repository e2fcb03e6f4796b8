// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers assembles the controllers of the controller manager. Each has its own package below this one.
//
// One controller manager runs in every cluster of a peering, regardless of the cluster's role. A controller without
// objects in a cluster costs one idle watch.
//
// On a provider it enforces the requests of consumers, even while they are unreachable:
//
//	namespacemap         creates the remote namespaces
//	shadowpod            creates the pods, within the limits of packages tenancy and ledger
//	shadowendpointslice  creates the EndpointSlices
//	objectquota          makes the API server limit storage, ports and object counts according to the Quotas
//	nodefailure          deletes the pods of failed nodes; off by default
//	resourceoffer        publishes what this cluster offers to consumers that refractctl peer has joined
//	tenantaccess         creates Tenants for consumers that refractctl has admitted, and enforces their condition
//	resourceslice        creates the Quotas of ResourceSlices, for consumers that joined as Liqo does; off by default
//	authentication       admits consumers that join as Liqo does, with Tenants, ResourceSlices and Renews; off by default
//
// On a consumer it offloads namespaces:
//
//	namespaceoffloading  selects the providers of a namespace
//	replicator           sends the requests to the providers and returns their status
//	virtualnode          runs, drains and removes virtual nodes
//	identity             joins providers by Liqo's protocol, and sends ResourceSlices of this cluster; off by default
//	resourcerequest      denies ResourceSlices of this cluster that nobody sends to their provider
//	resourceshare        restores the ResourceSlices of virtual nodes at providers that run Liqo, which delete them in a drain
//	negotiation          applies the offers of the providers to the virtual nodes
//	credentials          renews the credentials for the providers
//	servingcertificate   approves the serving certificates of virtual kubelets
//	podstatus            labels the offloaded pods of a virtual node while the node is not ready
//	podscheduling        is the admission webhook that lets pods run on virtual nodes
//	webhookcert          issues the certificate of the webhooks
//	plugin               fetches, verifies and stores the modules of ReflectionPlugins; off by default
//
// On both sides foreigncluster reports whether the other cluster is reachable. Where they are enabled, network decides
// which ranges this cluster uses to reach a peer, addresses grants them, gateways runs the gateways of peers, and
// nodeaddresses requests an address for each real node.
//
// If Liqo's network module remaps the addresses of other clusters, package internal/networks reads the mapping from its
// Configurations.
//
// All controllers follow the same rules. Objects of users stay unstructured from the cache to the write, so that no
// field is lost. They are decoded in one pass, because unstructured objects would otherwise be expensive. Objects that
// are up to date are not written, and a write contains only the fields that it changes. Objects of other owners are
// left unchanged and reported once, in a Warning Event. Before an irreversible action, the cached object is compared
// with the API server. Retries back off from 5 ms to 30 s per object, without a shared rate limit. Every
// reconciliation, including its API calls, has a deadline. Calls to other clusters use one worker per cluster, so that
// an unresponsive cluster does not delay others.
//
// Metrics show what each controller does: the number of objects that it enforces, its writes by kind and verb, its
// errors by class (who can fix them), and its Warning Events by reason. The names of these metrics begin with
// refract_controller_.
package controllers
