// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// Level is the level of a log line.
type Level int

// Log levels.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Context describes the clusters and namespaces that a hook works for. It is read-only.
type Context struct{ root, config handle }

// Node returns the node of the whole context. It gives access to entries for which Context has no method.
func (c Context) Node() Node { return Node{c.root} }

// Config returns the plugin's configuration.
func (c Context) Config() Node { return Node{c.config} }

// LocalClusterID returns the ID of the consumer, the cluster with the original object.
func (c Context) LocalClusterID() string { return c.string("localClusterID") }

// RemoteClusterID returns the ID of the provider, the cluster with the copy.
func (c Context) RemoteClusterID() string { return c.string("remoteClusterID") }

// LocalNamespace returns the namespace of the object on the consumer.
func (c Context) LocalNamespace() string { return c.string("localNamespace") }

// RemoteNamespace returns the remote namespace on the provider.
func (c Context) RemoteNamespace() string { return c.string("remoteNamespace") }

// NodeName returns the name of the virtual node that represents the provider.
func (c Context) NodeName() string { return c.string("nodeName") }

// NodeIP returns the address of the virtual node, which is the address of its virtual kubelet.
func (c Context) NodeIP() string { return c.string("nodeIP") }

// OffloadingPatch returns the changes that the virtual node requires in each object: labelsNotReflected,
// annotationsNotReflected, nodeSelector, tolerations, affinity.nodeAffinity, runtimeClassName.
func (c Context) OffloadingPatch() Node { return Node{c.root.get("offloadingPatch")} }

// APIServerSupport returns how offloaded pods reach the consumer's API server: Disabled, Legacy, TokenAPI or Remote.
func (c Context) APIServerSupport() string { return c.string("apiServerSupport") }

// APIServer returns the address at which pods reach the API server: host, port and the ips of the host alias.
func (c Context) APIServer() Node { return Node{c.root.get("apiServer")} }

// ServiceAccountSecretName returns the name of the provider's Secret with the token of the pod's service account. It
// is used in the mode Legacy.
func (c Context) ServiceAccountSecretName() string { return c.string("serviceAccountSecretName") }

// LoadBalancerClass returns the load balancer class that was negotiated with the provider, or "".
func (c Context) LoadBalancerClass() string { return c.string("loadBalancerClass") }

// IngressClass returns the ingress class that was negotiated with the provider, or "".
func (c Context) IngressClass() string { return c.string("ingressClass") }

// DisableIPReflection reports whether addresses must not be reflected, because the clusters do not share a network.
func (c Context) DisableIPReflection() bool { return c.root.boolean("disableIPReflection", false) }

// VirtualNode returns the ID of the cluster that a node of the consumer represents. It returns "" if the node is not a
// virtual node.
func (c Context) VirtualNode(name string) string {
	id, _ := c.root.str(joinKey("virtualNodes", name))
	return id
}

// Namespaces maps the names of offloaded namespaces to the names of their remote namespaces. It is available only for
// NetworkPolicies.
func (c Context) Namespaces() StringMap { return StringMap{c.root, "namespaces"} }

// ServiceAnnotations returns the annotations of the Service to which an EndpointSlice belongs.
func (c Context) ServiceAnnotations() StringMap { return StringMap{c.root, "serviceAnnotations"} }

// Local returns the consumer's object. It exists only in the incoming hook.
func (c Context) Local() Object { return Object{Node{c.root.get("local")}} }

// ExtraRestarts returns the number of restarts of a container in earlier pods that the provider has lost. It must be
// added to the restart count of the present pod.
func (c Context) ExtraRestarts(container string) int64 {
	return c.root.integer(joinKey("extraRestarts", container), 0)
}

// RemoteUnavailable reports whether the provider cannot be reached, so that the state of the provider's object may be
// outdated.
func (c Context) RemoteUnavailable() bool { return c.root.boolean("remoteUnavailable", false) }

// RemapIP translates an address, or a block of addresses in CIDR notation, to the address or block that the other
// cluster uses. It returns false if there is no translation (yet), or if a block cannot be translated as a whole. The
// result is valid until the hook returns.
func (c Context) RemapIP(ip string) (string, bool) { return c.root.remapIP(ip) }

// Warn shows a warning to the user as an Event on the object. The parts are concatenated.
func (c Context) Warn(parts ...string) { c.root.warn(Concat(parts...)) }

// Log writes a line to the host's log. The parts are concatenated.
func (c Context) Log(level Level, parts ...string) { c.root.log(level, Concat(parts...)) }

func (c Context) string(path string) string {
	s, _ := c.root.str(path)
	return s
}
