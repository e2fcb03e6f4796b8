// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAwaitsAnAPIServer checks that a command waits for an API server that is restarted in the meantime, and then
// continues. A drain takes minutes.
func TestAwaitsAnAPIServer(t *testing.T) {
	var out strings.Builder
	away := apierrors.NewServiceUnavailable("etcd is starting")
	errs := []error{away, away, nil}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoError(t, AwaitOne(ctx, &out, "virtual node", "milan", time.Minute, func(context.Context) (bool, string, error) {
		err := errs[0]
		errs = errs[1:]
		return err == nil, "drained", err
	}))
	assert.Contains(t, out.String(), "drained")

	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := AwaitOne(ctx, &out, "virtual node", "milan", time.Second, func(context.Context) (bool, string, error) { return false, "", away })
	assert.ErrorContains(t, err, "virtual node milan: not done after 1s")
	assert.ErrorContains(t, err, "etcd is starting")
}
