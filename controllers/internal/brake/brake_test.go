// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/oscillation"
)

// TestOnlyAQuarantineIsWaitedFor checks that a reconciliation whose only error is a quarantine does not fail, and is
// repeated when the quarantine ends. With another error, it must be retried as usual.
func TestOnlyAQuarantineIsWaitedFor(t *testing.T) {
	fight, other := &oscillation.QuarantineError{Left: time.Minute}, errors.New("other")
	for name, tc := range map[string]struct {
		wait, want time.Duration
		err        error
		fails      bool
	}{
		"nothing":               {wait: time.Second, want: time.Second},
		"a quarantine":          {err: fight, want: time.Minute},
		"one that is wrapped":   {err: errors.Join(nil, fmt.Errorf("creating it, %w", fight)), want: time.Minute},
		"with an earlier retry": {wait: time.Second, err: fight, want: time.Second},
		"with another error":    {err: errors.Join(fight, other), fails: true},
		"another error":         {err: other, fails: true},
		"the first of several":  {err: errors.Join(&oscillation.QuarantineError{Left: time.Hour}, fight, &oscillation.QuarantineError{Left: 2 * time.Hour}), want: time.Minute},
	} {
		wait, err := Wait(tc.wait, tc.err)
		assert.Equal(t, tc.want, wait, name)
		assert.Equal(t, tc.fails, err != nil, name)
	}
}

// TestAnotherErrorDelaysNoRestoration checks that another error does not delay the correction of an object that
// restricts a party.
func TestAnotherErrorDelaysNoRestoration(t *testing.T) {
	fight, other := &oscillation.QuarantineError{Left: 7 * time.Second}, errors.New("other")
	inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		wait, err := Wait(0, errors.Join(other, fight))
		return reconcile.Result{RequeueAfter: wait}, err
	})
	var failed error
	result, err := report.Failures(inner, func(err error) { failed = err }).Reconcile(t.Context(), reconcile.Request{})
	assert.NoError(t, err)
	assert.Equal(t, 7*time.Second, result.RequeueAfter)
	assert.ErrorIs(t, failed, other)
}

// TestThePatchOfARestorationIsTheSameEachTime checks that the patch counts as the same in each round of a fight,
// although the resource version differs.
func TestThePatchOfARestorationIsTheSameEachTime(t *testing.T) {
	read := func(version string) (string, []string) {
		before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", ResourceVersion: version, Labels: map[string]string{"a": "b"}}}
		now := before.DeepCopy()
		now.Labels, now.Annotations = nil, map[string]string{"example.org/c": "d"}
		text, fields, err := readPatch(client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), now)
		require.NoError(t, err)
		return text, fields
	}
	first, fields := read("1")
	second, _ := read("2")
	assert.Equal(t, first, second)
	assert.Equal(t, []string{"metadata.annotations.example.org/c", "metadata.labels"}, fields)
}
