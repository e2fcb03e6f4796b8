// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPortablePatchCostsFuel checks that patches are stopped that are short but cause much work, because each operation
// measures a large value.
func TestPortablePatchCostsFuel(t *testing.T) {
	large := map[string]any{"spec": map[string]any{"list": make([]any, 100_000)}}
	for _, operation := range []string{`{"op":"copy","from":"/spec","path":"/spec"}`, `{"op":"move","from":"/spec","path":"/x"},{"op":"move","from":"/x","path":"/spec"}`} {
		d := newDriver(t, large, nil, Limits{OutputBytes: 1 << 28})
		patch := "[" + strings.TrimSuffix(strings.Repeat(operation+",", 100), ",") + "]"
		var out *OutOfFuelError
		require.ErrorAs(t, d.i.takeOutput([]byte(patch)), &out, operation)
	}
}

// TestPortablePatchEndsInTime checks that the timeout of a run stops a patch between two operations.
func TestPortablePatchEndsInTime(t *testing.T) {
	d := newDriver(t, map[string]any{"spec": map[string]any{}}, nil, Limits{})
	patch := []byte(`[{"op":"add","path":"/spec/a","value":1},{"op":"add","path":"/spec/b","value":1}]`)
	require.NoError(t, d.i.takeOutput(patch))
	d.call()
	d.env.Clock.StartRun(-time.Nanosecond)
	var limit *LimitError
	require.ErrorAs(t, d.i.takeOutput(patch), &limit)
	if limit.Limit != LimitTime || limit.Plugin != "driver" {
		t.Errorf("%v, want the time to be up in driver", limit)
	}
}
