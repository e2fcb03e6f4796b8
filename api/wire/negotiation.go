// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations with which a virtual node follows the offer of its provider, if both clusters run Refract.
const (
	// NegotiateLabel ("true") marks a ResourceSlice on the provider that requests only an offer, but no certificate
	// and no Quota.
	NegotiateLabel = "plugins.refract.io/negotiate"
	// RequestedResourcesAnnotation on a VirtualNode contains the requested resources, in the format cpu=2,memory=4Gi.
	// They limit the resources that a provider may grant.
	RequestedResourcesAnnotation = "plugins.refract.io/requested-resources"
	// NegotiatedFieldsAnnotation on a VirtualNode lists the fields of its spec that follow the provider's offer,
	// separated by commas.
	NegotiatedFieldsAnnotation = "plugins.refract.io/negotiated-fields"
	// AcceptedLabelsAnnotation on a VirtualNode lists the labels that the provider may offer, as KEY or KEY=VALUE,
	// separated by commas. A * in a key matches any characters except /.
	AcceptedLabelsAnnotation = "plugins.refract.io/accepted-labels"
	// OfferAnnotation on a VirtualNode contains the provider's response (Accepted, Denied or NotNegotiated) and the
	// reason.
	OfferAnnotation = "plugins.refract.io/offer"
)
