// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
)

// Answer of a provider, as wire.OfferAnnotation begins.
type Answer string

// The answers.
const (
	Accepted      Answer = "Accepted"
	Denied        Answer = "Denied"
	NotNegotiated Answer = "NotNegotiated"
)

// Find returns the slice that a virtual node follows: its own, or else that of the first virtual node of the provider, which is called as
// the provider. Own is false for the latter, whose resources are not meant. It returns nil if there is neither.
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

// AnswerOf returns what the provider has decided, and why; "" as long as it has not.
func AnswerOf(slice *auth.ResourceSlice) (answer Answer, message string) {
	condition := slice.Status.Condition(auth.ResourcesCondition)
	switch {
	case condition == nil:
		return "", ""
	case condition.Status == auth.ResourceSliceAccepted:
		return Accepted, ""
	}
	return Denied, shortened(condition.Message)
}

// shortened is what a provider has written, as far as it fits into a message.
func shortened(text string) string {
	const most = 400
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Usable returns what may be used of an accepted slice, and says what may not. Of a slice that is not the node's own no resources are used.
func Usable(slice *auth.ResourceSlice, own bool, asked corev1.ResourceList) (Offer, []string) {
	if !own {
		asked = nil
	}
	return Check(&slice.Status, asked)
}
