// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package short

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLate checks which tests begin. Those that are left out say why.
func TestLate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out slow tests anyway")
	}
	selected := flag.Lookup("test.run").Value
	given := selected.String()
	t.Cleanup(func() { require.NoError(t, selected.Set(given)) })
	require.NoError(t, selected.Set(""))
	now := time.Now().Unix()
	for value, late := range map[string]bool{"": false, "soon": false, fmt.Sprint(now + 3600): false, fmt.Sprint(now - 1): true} {
		t.Setenv(untilVariable, value)
		assert.Equal(t, late, IsLate(), "%s=%q", untilVariable, value)
		began := false
		t.Run("slow", func(t *testing.T) {
			NeedTime(t, "a control plane")
			began = true
		})
		assert.Equal(t, !late, began, "%s=%q", untilVariable, value)
	}
	t.Setenv(untilVariable, fmt.Sprint(now-1))
	require.NoError(t, selected.Set("TestLate"))
	assert.False(t, IsLate(), "the tests are selected")
}
