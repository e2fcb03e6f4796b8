// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
)

// Answer is the decision of a provider. It is the first word of wire.OfferAnnotation.
type Answer string

// The possible decisions of a provider.
const (
	Accepted      Answer = "Accepted"
	Denied        Answer = "Denied"
	NotNegotiated Answer = "NotNegotiated"
)

// Find returns the slice that a virtual node follows. This is the node's own slice or, if it does not exist, the
// slice of the provider's first virtual node, which has the name of the provider. own is false for the slice of the
// first virtual node, whose resources do not apply. Find returns nil if neither slice exists.
func Find(all []auth.ResourceSlice, node, provider string) (slice *auth.ResourceSlice, own bool) {
	for i := range all {
		switch all[i].Name {
		case node:
			return &all[i], true
		case provider:
			slice = &all[i]
		}
	}
	return slice, false
}

// AnswerOf returns the decision of the provider with its reason, or empty strings if it has not decided yet.
func AnswerOf(slice *auth.ResourceSlice) (answer Answer, message string) {
	condition := slice.Status.Condition(auth.ResourcesCondition)
	switch {
	case condition == nil:
		return "", ""
	case condition.Status == auth.ResourceSliceAccepted:
		return Accepted, ""
	}
	return Denied, shortenText(condition.Message)
}

// shortenText returns the beginning of a provider's text, for messages.
func shortenText(text string) string {
	const most = 400
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Usable returns the usable part of an accepted slice, and problems with the other parts. If the slice does not
// belong to the node itself, its resources are not used.
func Usable(slice *auth.ResourceSlice, own bool, asked corev1.ResourceList) (Offer, []string) {
	if !own {
		asked = nil
	}
	return Check(&slice.Status, asked)
}
