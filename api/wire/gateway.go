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
	// PodNameLabel and PodNamespaceLabel mark the IP of an offloaded pod.
	PodNameLabel      = "offloading.liqo.io/pod-name"
	PodNamespaceLabel = "offloading.liqo.io/pod-namespace"
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

// Annotations on the PublicKey of a peer, by which two gateways of Refract replace their keys without losing the connection. Keys are in
// base64, with commas between them.
const (
	// OtherPublicKeyAnnotation contains spec.publicKey, and another key that the peer may use as well. If the first one is not
	// spec.publicKey, another client has replaced that key, and the annotation is ignored.
	OtherPublicKeyAnnotation = "plugins.refract.io/other-public-key"
	// AcceptedKeysAnnotation contains the public keys of this cluster's gateway that the peer accepts.
	AcceptedKeysAnnotation = "plugins.refract.io/accepted-keys"
)

// KeyRotationAnnotation describes, on the Deployment of a gateway, the progress of the replacement of its keys. The value is JSON.
const KeyRotationAnnotation = "plugins.refract.io/key-rotation"

// AlternateKeysName returns the name of the second Secret with keys of a gateway. status.secretRef names the Secret in use. The other
// one contains the keys that will replace them or were replaced, or does not exist.
func AlternateKeysName(gateway string) string { return GatewayObjectName(gateway) + "-alternate" }
