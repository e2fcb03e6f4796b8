// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// Level of a log line.
type Level int

// Log levels.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Context describes the clusters and namespaces of a hook. It is read-only.
type Context struct{ root, config handle }

// Node returns the context itself, for entries that have no method here.
func (c Context) Node() Node { return Node{c.root} }

// Config returns the plugin's configuration.
func (c Context) Config() Node { return Node{c.config} }

// LocalClusterID returns the ID of the consumer, the cluster of the object.
func (c Context) LocalClusterID() string { return c.string("localClusterID") }

// RemoteClusterID returns the ID of the provider, the cluster of the copy.
func (c Context) RemoteClusterID() string { return c.string("remoteClusterID") }

// LocalNamespace returns the consumer's namespace.
func (c Context) LocalNamespace() string { return c.string("localNamespace") }

// RemoteNamespace returns the remote namespace on the provider.
func (c Context) RemoteNamespace() string { return c.string("remoteNamespace") }

// NodeName returns the name of the provider's virtual node.
func (c Context) NodeName() string { return c.string("nodeName") }

// NodeIP returns the address of the virtual node: its virtual kubelet's.
func (c Context) NodeIP() string { return c.string("nodeIP") }

// OffloadingPatch returns the changes that the virtual node makes to
// each object: labelsNotReflected, annotationsNotReflected,
// nodeSelector, tolerations, affinity.nodeAffinity, runtimeClassName.
func (c Context) OffloadingPatch() Node { return Node{c.root.get("offloadingPatch")} }

// APIServerSupport returns how offloaded pods reach the consumer's API server:
// Disabled, Legacy, TokenAPI or Remote.
func (c Context) APIServerSupport() string { return c.string("apiServerSupport") }

// APIServer returns the API server's address for pods: host, port and the ips of the host alias.
func (c Context) APIServer() Node { return Node{c.root.get("apiServer")} }

// ServiceAccountSecretName returns the name of the provider's Secret
// with the token of the pod's service account in mode Legacy.
func (c Context) ServiceAccountSecretName() string { return c.string("serviceAccountSecretName") }

// LoadBalancerClass returns the provider's negotiated class, or "".
func (c Context) LoadBalancerClass() string { return c.string("loadBalancerClass") }

// IngressClass returns the provider's negotiated class, or "".
func (c Context) IngressClass() string { return c.string("ingressClass") }

// DisableIPReflection reports whether the clusters do not share a network.
func (c Context) DisableIPReflection() bool { return c.root.boolean("disableIPReflection", false) }

// VirtualNode returns the cluster that a node of the
// consumer represents, or "" if it is an ordinary node.
func (c Context) VirtualNode(name string) string {
	id, _ := c.root.str(joinKey("virtualNodes", name))
	return id
}

// Namespaces returns the remote namespaces on the provider by the names
// of the offloaded namespaces. It is available for NetworkPolicies only.
func (c Context) Namespaces() StringMap { return StringMap{c.root, "namespaces"} }

// ServiceAnnotations returns the annotations of the Service of an EndpointSlice.
func (c Context) ServiceAnnotations() StringMap { return StringMap{c.root, "serviceAnnotations"} }

// Local returns the consumer's object. It exists in the incoming hook only.
func (c Context) Local() Object { return Object{Node{c.root.get("local")}} }

// ExtraRestarts returns how often a container was lost
// with an earlier copy of the pod on the provider.
func (c Context) ExtraRestarts(container string) int64 {
	return c.root.integer(joinKey("extraRestarts", container), 0)
}

// RemoteUnavailable reports whether the provider cannot be
// reached, so that the state of the object there may be stale.
func (c Context) RemoteUnavailable() bool { return c.root.boolean("remoteUnavailable", false) }

// RemapIP translates an address, or a block of addresses in CIDR
// notation, to the one that the other cluster uses. It returns false
// if there is no such address (yet), or if the block cannot be
// translated as a whole. The result is valid until the hook returns.
func (c Context) RemapIP(ip string) (string, bool) { return c.root.remapIP(ip) }

// Warn shows a warning to the user, as an Event on the object. The parts are joined.
func (c Context) Warn(parts ...string) { c.root.warn(Concat(parts...)) }

// Log writes a line to the host's log. The parts are joined.
func (c Context) Log(level Level, parts ...string) { c.root.log(level, Concat(parts...)) }

func (c Context) string(path string) string {
	s, _ := c.root.str(path)
	return s
}
