// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// ClaimsPage is the page size for reading claims.
const ClaimsPage = claimsPage

// BoundClaims returns the bound claims in a namespace as the controller reads them from live.
func BoundClaims(ctx context.Context, live client.Reader, namespace string) ([]string, error) {
	return (&Controller{uncached: live}).boundClaims(ctx, namespace)
}

// GrantedReader returns a function for a controller that reads from live. The function returns the resources that a
// consumer is granted beyond the chart, and whose number the controller therefore limits. It also returns the time at
// which they are read again.
func GrantedReader(c client.Client, live client.Reader, options Options) func(ctx context.Context, nm *offloading.NamespaceMap, namespace string) ([]string, time.Time, error) {
	created := NewController(c, live, events.NewFakeRecorder(100), options)
	return func(ctx context.Context, nm *offloading.NamespaceMap, namespace string) (names []string, until time.Time, err error) {
		counts, err := created.getGrantedCounts(ctx, nm, namespace)
		for name := range counts {
			names = append(names, string(name))
		}
		known, _ := created.granted.Get(types.NamespacedName{Name: namespace})
		return names, known.until, err
	}
}
