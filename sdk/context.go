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

// LocalClusterID is the ID of the consumer, the cluster of the object.
func (c Context) LocalClusterID() string { return c.string("localClusterID") }

// RemoteClusterID is the ID of the provider, the cluster of the copy.
func (c Context) RemoteClusterID() string { return c.string("remoteClusterID") }

// LocalNamespace is the consumer's namespace.
func (c Context) LocalNamespace() string { return c.string("localNamespace") }

// RemoteNamespace is its remote namespace on the provider.
func (c Context) RemoteNamespace() string { return c.string("remoteNamespace") }

// NodeName is the virtual node of the provider.
func (c Context) NodeName() string { return c.string("nodeName") }

// NodeIP is the address of the virtual node: its virtual kubelet's.
func (c Context) NodeIP() string { return c.string("nodeIP") }

// OffloadingPatch is what the virtual node wants changed on each object:
// labelsNotReflected, annotationsNotReflected, nodeSelector, tolerations,
// affinity.nodeAffinity, runtimeClassName.
func (c Context) OffloadingPatch() Node { return Node{c.root.get("offloadingPatch")} }

// APIServerSupport returns how offloaded pods reach the consumer's API server:
// Disabled, Legacy, TokenAPI or Remote.
func (c Context) APIServerSupport() string { return c.string("apiServerSupport") }

// APIServer is where they reach it: host, port and the ips of the host alias.
func (c Context) APIServer() Node { return Node{c.root.get("apiServer")} }

// ServiceAccountSecretName is the provider's Secret that holds the token of the
// pod's service account in mode Legacy.
func (c Context) ServiceAccountSecretName() string { return c.string("serviceAccountSecretName") }

// LoadBalancerClass is the provider's negotiated class, or "".
func (c Context) LoadBalancerClass() string { return c.string("loadBalancerClass") }

// IngressClass is the provider's negotiated class, or "".
func (c Context) IngressClass() string { return c.string("ingressClass") }

// DisableIPReflection reports that the clusters do not share a network.
func (c Context) DisableIPReflection() bool { return c.root.boolean("disableIPReflection", false) }

// VirtualNode returns the cluster that a node of the consumer stands for, or
// "" when it is an ordinary node.
func (c Context) VirtualNode(name string) string {
	id, _ := c.root.str(joinKey("virtualNodes", name))
	return id
}

// Namespaces are the remote namespaces on the provider by the names of the
// namespaces that are offloaded to it. They exist for NetworkPolicies alone.
func (c Context) Namespaces() StringMap { return StringMap{c.root, "namespaces"} }

// ServiceAnnotations are the annotations of the Service of an EndpointSlice.
func (c Context) ServiceAnnotations() StringMap { return StringMap{c.root, "serviceAnnotations"} }

// Local is the consumer's object; it exists for the incoming hook alone.
func (c Context) Local() Object { return Object{Node{c.root.get("local")}} }

// ExtraRestarts is how often a container was lost with an earlier copy of the
// pod on the provider.
func (c Context) ExtraRestarts(container string) int64 {
	return c.root.integer(joinKey("extraRestarts", container), 0)
}

// RemoteUnavailable reports that the provider cannot be reached, so that what
// is known of the object there may be stale.
func (c Context) RemoteUnavailable() bool { return c.root.boolean("remoteUnavailable", false) }

// RemapIP translates an address, or a block of addresses in CIDR notation, as the
// other cluster reaches it. It returns false if there is no such address (yet),
// or if the block cannot be translated as a whole. The result is valid until the
// hook returns.
func (c Context) RemapIP(ip string) (string, bool) { return c.root.remapIP(ip) }

// Warn reports to the user through an Event on the object. The parts are joined.
func (c Context) Warn(parts ...string) { c.root.warn(Concat(parts...)) }

// Log writes a line to the host's log. The parts are joined.
func (c Context) Log(level Level, parts ...string) { c.root.log(level, Concat(parts...)) }

func (c Context) string(path string) string {
	s, _ := c.root.str(path)
	return s
}
