// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels of the objects of a gateway. The names and values are Liqo's.
const (
	// GatewayResourceLabel ("true") marks the Secret with the keys of a gateway, and the PublicKey of the peer's gateway.
	GatewayResourceLabel = "networking.liqo.io/gateway-resource"
	// GatewayComponentLabel marks the pods of a gateway.
	GatewayComponentLabel = "networking.liqo.io/component"
	// GatewayComponent is the value of GatewayComponentLabel and, on Deployments, of ComponentLabel.
	GatewayComponent = "gateway"
	// GatewayNameLabel is the name of the GatewayServer or GatewayClient.
	GatewayNameLabel = "networking.liqo.io/gateway-name"
	// NodeIPLabel ("true") marks the IPs of nodes in the external range. Gateways do not translate these addresses.
	NodeIPLabel = "networking.liqo.io/host-unreachable"
	// GatewayNamespaceLabel is the tenant namespace of the peer.
	GatewayNamespaceLabel = "networking.liqo.io/gateway-namespace"
)

// GatewayElection is the name of the Lease by which the pods of a gateway elect the active one, and of the EndpointSlice
// that leads the Service of the gateway to this pod. A tenant namespace has one gateway, so permissions can be
// restricted to this name.
const GatewayElection = "gateway"

// GatewayServiceAccount is the name of the ServiceAccount of gateways, in each tenant namespace.
const GatewayServiceAccount = "refract-gateway"

// GatewayObjectName returns the name of a gateway's Deployment, Service, key Secret and Connection. liqoctl waits for
// this Deployment.
func GatewayObjectName(gateway string) string { return "gw-" + gateway }

// Fields of the Secret with the keys of a gateway, as in Liqo. Each key has 32 bytes (Curve25519).
const (
	PrivateKeyField = "privateKey"
	PublicKeyField  = "publicKey"
)

// ChosenAddressAnnotation ("true") marks a GatewayClient that connects to an address that the user has set, and not to the
// address of the server.
const ChosenAddressAnnotation = "plugins.refract.io/chosen-gateway-address"
