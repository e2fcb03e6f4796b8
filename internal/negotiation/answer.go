// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
)

// Answer is a provider's decision. It is the first word of wire.OfferAnnotation.
type Answer string

// The decisions of a provider.
const (
	Accepted      Answer = "Accepted"
	Denied        Answer = "Denied"
	NotNegotiated Answer = "NotNegotiated"
)

// Find returns the slice that a virtual node follows. This is the node's own slice. If there is none, it is the slice
// of the provider's first virtual node, which is named after the provider; own is then false, and the resources of the
// slice do not apply. Find returns nil if neither slice exists.
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

// AnswerOf returns the provider's decision, and the reason for a denial. Both are empty if the provider has not decided yet.
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

// shortenText returns the beginning of a provider's text in quotes, for use in messages.
func shortenText(text string) string {
	const most = 400
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Usable returns the usable part of an accepted slice, and the problems with the rest. The resources of the slice are
// used only if own is true, i.e. if it is the node's own slice.
func Usable(slice *auth.ResourceSlice, own bool, asked corev1.ResourceList) (Offer, []string) {
	if !own {
		asked = nil
	}
	return Check(&slice.Status, asked)
}

// mostAdded is the maximum number of resources that a provider may add to a request.
const mostAdded = 32

// RequestedBy returns the resources that a slice of this cluster requests, and those that the provider has added. The
// provider decides on the amounts of the latter.
func RequestedBy(request *auth.ResourceSlice) corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(request.Status.Resources)) {
		amount := request.Status.Resources[name]
		if len(all) < mostAdded && len(validation.IsQualifiedName(string(name))) == 0 && amount.Sign() >= 0 {
			all[name] = amount
		}
	}
	maps.Copy(all, request.Spec.Resources)
	return all
}
