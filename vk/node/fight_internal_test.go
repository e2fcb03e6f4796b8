// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/oscillation"
)

// TestQuarantinesHideNoErrors checks that a quarantine does not hide other errors of the same comparison.
func TestQuarantinesHideNoErrors(t *testing.T) {
	quarantine := fmt.Errorf("creating node milan, %w", &oscillation.QuarantineError{})
	lease := errors.New("the lease cannot be written")
	require.NoError(t, withoutQuarantines(nil))
	require.NoError(t, withoutQuarantines(errors.Join(nil, quarantine)))
	assert.Equal(t, lease, withoutQuarantines(lease))
	others := withoutQuarantines(errors.Join(errors.Join(quarantine, lease), quarantine))
	require.ErrorIs(t, others, lease)
	assert.Equal(t, lease.Error(), others.Error())
}
