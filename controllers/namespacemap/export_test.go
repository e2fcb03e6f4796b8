// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClaimsPage is the page size for reading claims.
const ClaimsPage = claimsPage

// BoundClaims returns the bound claims that a controller reads from live.
func BoundClaims(ctx context.Context, live client.Reader, namespace string) ([]string, error) {
	return (&Controller{uncached: live}).boundClaims(ctx, namespace)
}
