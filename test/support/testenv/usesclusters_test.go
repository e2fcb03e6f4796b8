// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTestsOfClusters(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a

var provider = controllertest.Cluster{ID: "milan"}
var limit = 7

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }
func TestDirectly(t *testing.T) { provider.Namespace(t) }
func TestByHelper(t *testing.T) { start(t) }
func TestByMethod(t *testing.T) { (&world{t}).begin() }
func TestWithout(t *testing.T) { if limit != compute() { t.Fail() } }
func start(t *testing.T) { again(t) }
func compute() int { return 7 }
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte(`package a

func again(t *testing.T) { provider.StartManager(t) }
func (w *world) begin() { again(w.T) }
`), 0o600))
	tests, err := testsOfClusters(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"TestByHelper", "TestByMethod", "TestDirectly"}, tests)
}
