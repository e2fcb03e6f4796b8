// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// HomeClusterIPsAnnotation on the copy of a Service contains the cluster IPs of the Service in the consumer's cluster,
// separated by commas. Providers translate them for the pods of this consumer. The virtual kubelet of the consumer writes
// it, so that a provider must not trust it for anything else.
const HomeClusterIPsAnnotation = "plugins.refract.io/home-cluster-ips"
