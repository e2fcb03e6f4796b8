// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Values come from files and flags, as with helm: what is more specific counts.
func TestInstallTakesValuesAsHelmDoes(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	first := file("first.yaml", "discovery: {config: {clusterID: turin}}\ncontrollerManager: {replicas: 3, image: {version: first}}\n")
	second := file("second.yaml", "discovery: {config: {clusterID: rome}}\ncontrollerManager: {image: {version: second}}\n")
	install := []string{
		"install", "--dry-run", "--registry=registry.example.com/refract", "-f", first, "-f", second,
		"--set=controllerManager.image.version=0.5", "--set-string=controllerManager.pod.annotations.revision=7",
		`--set-json=common.nodeSelector={"role":"infra"}`, "--set-file=controllerManager.pod.annotations.note=" + file("note", "text of a file"),
	}
	out, _, err := refractctl(t, onCluster(append(install, "-o", "json")...)...)
	require.NoError(t, err)
	result := printedResult(t, out)
	assert.Equal(t, &resultRelease{Name: defaultRelease, Namespace: defaultNamespace, Revision: 1}, result.Release)
	assert.Contains(t, result.Steps, "installing release refract in namespace liqo")
	for _, want := range []string{"--cluster-id=rome", "replicas: 3", "controller-manager:0.5", `revision: "7"`, "role: infra", "note: text of a file"} {
		assert.Contains(t, result.Manifest, want)
	}
	manifest, _, err := refractctl(t, onCluster(install...)...)
	require.NoError(t, err)
	assert.Equal(t, result.Manifest, manifest)

	for _, wrong := range []string{"--set-json=a={", "--set-file=a=" + filepath.Join(folder, "absent"), "--values=" + filepath.Join(folder, "absent"), "--set=a"} {
		_, _, err := refractctl(t, onCluster(append(install, wrong)...)...)
		assert.Equal(t, exitUsage, exitCode(err), "%s: %v", wrong, err)
	}
}
