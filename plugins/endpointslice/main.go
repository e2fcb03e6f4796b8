// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for EndpointSlices, which shows the provider the endpoints
// that its own control plane does not see (Liqo: EndpointSlice reflection).
//
//   - Endpoints on the virtual node of this provider are left out: their pods
//     are there, and the provider has slices of its own for them. A slice of
//     which nothing remains is not reflected.
//   - Addresses are remapped to what the provider reaches them by. An endpoint
//     that has no such address (yet) is left out alone, with a warning; the
//     others do not wait for it. Host names (addressType FQDN) mean the same
//     everywhere and stay.
//   - With the annotation liqo.io/use-direct-connections: "true" on the Service,
//     the addresses of pods of third clusters stay as they are, and the
//     annotation liqo.io/direct-connections-data says whose they are: the
//     provider knows by itself how it reaches that cluster. Other addresses are
//     remapped as ever.
//   - nodeName becomes the consumer's cluster id: seen from the provider, that
//     is where the endpoint is. The kind of targetRef is prefixed Remote, as
//     the object cannot be found there.
//   - zone, hints and deprecatedTopology describe the consumer's topology and
//     go, unless the configuration says keepTopology: true for clusters that
//     share their zones.
//   - The annotation endpoints.kubernetes.io/last-change-trigger-time goes: it
//     says when a pod or the Service changed in the consumer's cluster, for
//     kube-proxy there to measure how long it takes to follow. It changes even
//     when only endpoints that are left out did, so that keeping it would cost
//     writes to the provider for nothing, and the provider's kube-proxy would
//     measure across the clocks of two clusters.
//   - All conditions cross (ready, serving, terminating), as does everything
//     else: ports, host names, and fields not named here.
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

// What goes.
const (
	always   = "metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]\n" + directData
	topology = "\nendpoints.*.zone\nendpoints.*.hints\nendpoints.*.deprecatedTopology"
)

// directData is where the addresses that belong to third clusters are listed.
const directData = "metadata.annotations[" + wire.DirectConnectionsDataAnnotation + "]"

// maxAnnotations is how many bytes the API server allows the annotations of an
// object to have, keys included.
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
		r.goesDirect, _ = wire.UsesDirectConnections(value) // what else it may be is reported on the Service
	}
	endpoints := slice.Get("endpoints")
	// From the end, so that removing an element does not move those to come.
	for i := endpoints.Len("") - 1; i >= 0; i-- {
		if !r.endpoint(endpoints.At(i)) {
			endpoints.RemoveAt(i)
		}
	}
	r.report()
	if endpoints.Len("") == 0 {
		return sdk.Skip("no endpoint is left that the provider does not have itself")
	}
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

// annotate says which addresses belong to third clusters, if any do.
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

// remapper changes the endpoints of one slice.
type remapper struct {
	ctx           sdk.Context
	local, remote string // cluster ids
	isNames       bool   // addresses are host names
	goesDirect    bool   // between the provider and third clusters

	lastNode    string // the node asked for last, and the answer
	lastCluster string

	unmapped int // addresses without a counterpart, and the first of them
	example  string

	direct  []thirdEndpoint // in reverse order
	wasHere bool            // some endpoint has been remapped before
}

// thirdEndpoint is an endpoint of a third cluster to which the provider talks directly.
type thirdEndpoint struct {
	cluster   string
	addresses sdk.Node
}

// endpoint changes one endpoint and reports whether it is to be kept.
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

// clusterOf returns the cluster for which a node stands, "" when it is one of
// the consumer's own. Endpoints of a slice are often on the same node as the
// one before.
func (r *remapper) clusterOf(node string) string {
	if node == "" || node == r.local {
		return ""
	}
	if node != r.lastNode {
		r.lastNode, r.lastCluster = node, r.ctx.VirtualNode(node)
	}
	return r.lastCluster
}

// directConnections returns the note on third clusters, "" for none.
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

// remap translates the addresses of an endpoint, all or none.
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

// report warns once for the whole slice.
func (r *remapper) report() {
	if r.unmapped > 0 {
		r.ctx.Warn("endpoints without a mapped address were omitted, such as ", r.example)
	}
}
