// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/connection"
)

// MaxItems is the maximum number of objects of one kind that are read from a provider. It is far higher than the number
// of virtual nodes of a provider.
const MaxItems = 1000

// The limits of a provider's responses. This process serves all providers, so no provider may use up its memory. A
// response may contain a single object of the maximum size in an API server, or MaxItems objects of ordinary size.
// 50,000 values take up to 25 MiB.
var (
	// Answers limits responses that contain objects.
	Answers = connection.Limits{Bytes: 2 << 20, Values: 50_000, Items: MaxItems}
	// SmallAnswers limits responses that are empty or contain a token or a certificate.
	SmallAnswers = connection.Limits{Bytes: 1 << 20, Values: 5_000, Items: MaxItems}
)

// keepIdentity drops all fields of a watched object except its identity and its version. An event of the watch only
// notifies the controllers, which then read the object.
func keepIdentity(object any) (any, error) {
	found, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: found.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = found.Namespace, found.Name, found.UID, found.ResourceVersion
	return kept, nil
}
