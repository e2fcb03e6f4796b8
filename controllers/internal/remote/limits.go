// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/connection"
)

// MaxItems is how many objects of one kind are read from a provider: far more than virtual nodes of one provider.
const MaxItems = 1000

// This process serves all providers, so none of them may take much of its memory. A response may have a single object as large as an
// API server stores one, or MaxItems objects of ordinary size. 50,000 values take up to 25 MiB.
var (
	// Answers limits the responses with objects.
	Answers = connection.Limits{Bytes: 2 << 20, Values: 50_000, Items: MaxItems}
	// SmallAnswers limits the responses with tokens, certificates or nothing.
	SmallAnswers = connection.Limits{Bytes: 1 << 20, Values: 5_000, Items: MaxItems}
)

// keepIdentity keeps of a watched object what distinguishes it from others and from its other versions: the controllers are told that
// it has changed, and read it then.
func keepIdentity(object any) (any, error) {
	found, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: found.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = found.Namespace, found.Name, found.UID, found.ResourceVersion
	return kept, nil
}
