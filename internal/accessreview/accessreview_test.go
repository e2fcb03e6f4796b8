// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package accessreview

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestRefused checks that refused permissions are returned in their original order, and that a failed review is an
// error and not a refusal.
func TestRefused(t *testing.T) {
	t.Parallel()
	var all []authorizationv1.ResourceAttributes
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "bind", "escalate", "approve"} {
		all = append(all, authorizationv1.ResourceAttributes{Verb: verb, Resource: "secrets"})
	}
	refused, err := Refused(t.Context(), all, func(_ context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
		return a.Verb != "list" && a.Verb != "approve", nil
	})
	assert.NoError(t, err)
	assert.Equal(t, []authorizationv1.ResourceAttributes{all[1], all[9]}, refused)
	away := errors.New("away")
	refused, err = Refused(t.Context(), all, func(_ context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
		if a.Verb == "watch" {
			return false, away
		}
		return false, nil
	})
	assert.ErrorIs(t, err, away)
	assert.Empty(t, refused)
}
