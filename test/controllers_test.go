// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryControllerRunsUnderThePolicies requires that each package with a controller has tests in the clusters of
// controllertest. These clusters enforce the admission policies of the chart, and a denial fails the test. Without such
// tests, a controller and a policy could contradict each other even though each of them passes its own tests. The tests
// in test/join check that each permission is used.
func TestEveryControllerRunsUnderThePolicies(t *testing.T) {
	sources, err := filepath.Glob("../controllers/*/*.go")
	require.NoError(t, err)
	controllers, tested := map[string]bool{}, map[string]bool{}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		folder := filepath.Base(filepath.Dir(path))
		isTest := strings.HasSuffix(path, "_test.go")
		if !isTest && strings.Contains(string(text), "report.Failures(") {
			controllers[folder] = true
		}
		if isTest && strings.Contains(string(text), "controllertest.Main(") {
			tested[folder] = true
		}
	}
	require.NotEmpty(t, controllers)
	for folder := range controllers {
		assert.True(t, tested[folder], "controllers/%s has no test in a cluster of controllertest", folder)
	}
}
