// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for EndpointSlices. It gives the provider the endpoints that the provider's own control plane does
// not know. This corresponds to Liqo's EndpointSlice reflection.
//
//   - Endpoints on the virtual node of this provider are omitted, because their pods run on the provider, which has
//     its own slices for them. A slice without remaining endpoints is reflected, too: as for Liqo, each slice has a
//     copy, which then changes instead of being created and deleted whenever pods move.
//   - Addresses are remapped to the addresses that the provider uses. An endpoint whose address has no translation
//     (yet) is omitted with a warning, so that it does not delay the other endpoints. Host names (addressType FQDN)
//     have the same meaning in all clusters and stay.
//   - If the Service has the annotation liqo.io/use-direct-connections: "true", the addresses of pods in third
//     clusters are unchanged, and the annotation liqo.io/direct-connections-data lists their clusters, because the
//     provider itself knows how it reaches these clusters. Other addresses are remapped as usual.
//   - nodeName becomes the consumer's cluster ID, because for the provider the endpoint is in this cluster. The kind
//     of targetRef gets the prefix Remote, because the object does not exist on the provider.
//   - zone, hints and deprecatedTopology describe the consumer's topology. They are removed, unless the configuration
//     has keepTopology: true, which is for clusters that share their zones.
//   - The annotation endpoints.kubernetes.io/last-change-trigger-time is removed. It is the time of a change to a pod
//     or the Service in the consumer's cluster, from which kube-proxy computes its delay. With it, the provider's
//     kube-proxy would compare the clocks of two clusters. It also changes if only omitted endpoints have changed,
//     which would cause needless writes to the provider.
//   - All conditions are reflected (ready, serving, terminating), and so are all other fields: ports, host names, and
//     fields that are not named here.
package main

import (
	"strconv"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:         "endpointslice",
	Version:      "1.0.0",
	Kinds:        []string{"EndpointSlice.discovery.k8s.io"},
	Writes:       []string{"metadata.labels", "metadata.annotations", "endpoints"},
	Capabilities: []string{"skip"},
	ConfigSchema: `{"type":"object","additionalProperties":false,"properties":{` +
		`"keepTopology":{"type":"boolean","description":"Keep the zone and the hints of endpoints: ` +
		`both clusters have the same zones. Default: false."}}}`,
}, sdk.Outgoing(outgoing))

func main() {}

// Paths of fields that are removed from every EndpointSlice.
const (
	always   = "metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]\n" + directData
	topology = "\nendpoints.*.zone\nendpoints.*.hints\nendpoints.*.deprecatedTopology"
)

// directData is the path of the annotation that contains the addresses in third clusters.
const directData = "metadata.annotations[" + wire.DirectConnectionsDataAnnotation + "]"

// maxAnnotations is the maximum total size of an object's annotations in bytes, including keys. The API server
// enforces it.
const maxAnnotations = 256 << 10

func outgoing(ctx sdk.Context, slice sdk.Object) error {
	if ctx.DisableIPReflection() {
		return sdk.Skip("the clusters do not share a network")
	}
	earlier := slice.String(directData)
	sdk.FilterMetadata(ctx, slice)
	r := remapper{
		ctx:     ctx,
		local:   ctx.LocalClusterID(),
		remote:  ctx.RemoteClusterID(),
		isNames: slice.Is("addressType", "FQDN"),
	}
	if value, set := ctx.ServiceAnnotations().Lookup(wire.UseDirectConnectionsAnnotation); set && !r.isNames {
		r.goesDirect, _ = wire.UsesDirectConnections(value) // The plugin for Services reports an invalid value.
	}
	endpoints := slice.Get("endpoints")
	// The loop runs backwards, because removing an element changes the positions of later elements.
	for i := endpoints.Len("") - 1; i >= 0; i-- {
		if !r.endpoint(endpoints.At(i)) {
			endpoints.RemoveAt(i)
		}
	}
	r.report()
	if ctx.Config().True("keepTopology") {
		slice.Remove(always)
	} else {
		slice.Remove(always + topology)
	}
	if r.wasHere && len(r.direct) == 0 {
		return annotate(slice, earlier)
	}
	return annotate(slice, r.directConnections())
}

// annotate sets the annotation with the addresses in third clusters, if there are any.
func annotate(slice sdk.Object, data string) error {
	if data == "" {
		return nil
	}
	slice.SetString(directData, data)
	annotations, bytes := slice.Get("metadata.annotations"), 0
	for _, key := range annotations.Keys("") {
		bytes += len(key) + annotations.Field(key).Len("")
	}
	if bytes > maxAnnotations {
		return sdk.Fail(sdk.Concat("the annotations of the slice have ", strconv.Itoa(bytes), " bytes with ", wire.DirectConnectionsDataAnnotation,
			", more than the API server takes: shorten the others, or take ", wire.UseDirectConnectionsAnnotation, " off the Service"))
	}
	return nil
}

// remapper mutates the endpoints of one slice.
type remapper struct {
	ctx           sdk.Context
	local, remote string // cluster IDs
	isNames       bool   // whether the addresses are host names
	goesDirect    bool   // whether the provider connects to third clusters directly

	lastNode    string // last node that was looked up, and the cluster of this node
	lastCluster string

	unmapped int // number of omitted endpoints; example is an address without a translation
	example  string

	direct  []thirdEndpoint // endpoints in third clusters, in reverse order
	wasHere bool            // whether an earlier run has already remapped an endpoint
}

// thirdEndpoint is an endpoint in a third cluster that the provider reaches directly.
type thirdEndpoint struct {
	cluster   string
	addresses sdk.Node
}

// endpoint mutates one endpoint and reports whether to keep it.
func (r *remapper) endpoint(endpoint sdk.Node) bool {
	node := endpoint.String("nodeName")
	cluster := r.clusterOf(node)
	if cluster != "" && cluster == r.remote {
		return false
	}
	kind := endpoint.String("targetRef.kind")
	reflected := strings.HasPrefix(kind, wire.RemoteTargetKindPrefix)
	switch {
	case reflected && node == r.local:
		r.wasHere = true
		return true
	case r.goesDirect && kind != "" && cluster != "" && cluster != r.local:
		r.direct = append(r.direct, thirdEndpoint{cluster, endpoint.Get("addresses")})
	case !r.isNames && !r.remap(endpoint.Get("addresses")):
		return false
	}
	endpoint.SetString("nodeName", r.local)
	if kind != "" && !reflected {
		endpoint.SetString("targetRef.kind", wire.RemoteTargetKindPrefix+kind)
	}
	return true
}

// clusterOf returns the ID of the cluster that a node represents, or "" if it is an ordinary node of the consumer. The
// last result is cached, because consecutive endpoints are often on the same node.
func (r *remapper) clusterOf(node string) string {
	if node == "" || node == r.local {
		return ""
	}
	if node != r.lastNode {
		r.lastNode, r.lastCluster = node, r.ctx.VirtualNode(node)
	}
	return r.lastCluster
}

// directConnections returns the value of the annotation with the addresses in third clusters, or "" if there are none.
func (r *remapper) directConnections() string {
	if len(r.direct) == 0 {
		return ""
	}
	addresses := make([]wire.ThirdAddress, 0, len(r.direct))
	for i := len(r.direct) - 1; i >= 0; i-- {
		third := r.direct[i]
		for j := range third.addresses.Len("") {
			addresses = append(addresses, wire.ThirdAddress{Cluster: third.cluster, Address: third.addresses.At(j).String("")})
		}
	}
	return wire.EncodeDirectConnections(addresses)
}

// remap translates the addresses of an endpoint. If an address has no translation, it changes none of them.
func (r *remapper) remap(addresses sdk.Node) bool {
	for i := range addresses.Len("") {
		ip := addresses.At(i).String("")
		mapped, ok := r.ctx.RemapIP(ip)
		if !ok {
			r.unmapped++
			r.example = ip
			return false
		}
		if mapped != ip {
			addresses.SetString(strconv.Itoa(i), mapped)
		}
	}
	return true
}

// report emits a single warning for the whole slice.
func (r *remapper) report() {
	if r.unmapped > 0 {
		r.ctx.Warn("endpoints without a mapped address were omitted, such as ", r.example)
	}
}
