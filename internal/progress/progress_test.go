// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAwait(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(line string) { told = append(told, line) }
	states := []string{"not there", "not there", "not ready", ""}
	err := Await(t.Context(), tell, "node milan", func(context.Context) (string, error) {
		state := states[0]
		states = states[1:]
		return state, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, []string{"node milan: not there", "node milan: not ready"}, told)

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = Await(ctx, tell, "node milan", func(context.Context) (string, error) { return "not there", nil })
	assert.EqualError(t, err, "node milan: not there, and the timeout is over; run the command again to go on")

	failed := errors.New("forbidden")
	assert.ErrorIs(t, Await(t.Context(), tell, "node milan", func(context.Context) (string, error) { return "", failed }), failed)
}
