// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExampleIsThatOfTheREADME checks that the plugin in README.md is equal to the plugin in the package example.
func TestExampleIsThatOfTheREADME(t *testing.T) {
	readme, example := registration(t, "../README.md"), registration(t, "example_test.go")
	require.NotEmpty(t, readme)
	require.Equal(t, example, readme)
}

// registration returns the first statement of a file that calls sdk.Register.
func registration(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	_, call, isThere := strings.Cut(string(text), " = sdk.Register(\n")
	require.True(t, isThere, "%s registers no plugin", file)
	call, _, isThere = strings.Cut(call, "\n\n")
	require.True(t, isThere)
	return call
}
