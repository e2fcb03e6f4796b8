// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// How a virtual node follows what its provider offers, where both clusters run this project.
const (
	// NegotiateLabel ("true") marks a ResourceSlice, at the provider, that asks for an offer alone: no certificate, no Quota.
	NegotiateLabel = "plugins.refract.io/negotiate"
	// RequestedResourcesAnnotation, on a VirtualNode, is what was asked for, as cpu=2,memory=4Gi. It bounds what a provider may grant.
	RequestedResourcesAnnotation = "plugins.refract.io/requested-resources"
	// NegotiatedFieldsAnnotation, on a VirtualNode, lists the fields of its spec that follow the provider, separated by commas.
	NegotiatedFieldsAnnotation = "plugins.refract.io/negotiated-fields"
	// AcceptedLabelsAnnotation, on a VirtualNode, lists the labels that the provider may offer, as KEY or KEY=VALUE, separated by commas. A * in a
	// key matches any characters except /.
	AcceptedLabelsAnnotation = "plugins.refract.io/accepted-labels"
	// OfferAnnotation, on a VirtualNode, says what the provider has answered: Accepted, Denied or NotNegotiated, and why.
	OfferAnnotation = "plugins.refract.io/offer"
)
