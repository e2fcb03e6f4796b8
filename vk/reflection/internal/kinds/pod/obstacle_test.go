// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host/document"
)

// TestSourcesOfThisClusterOnly checks that sources of projected volumes that exist in this cluster only are obstacles,
// unless they are optional. It needs no API server, because API servers drop some of these sources by default.
func TestSourcesOfThisClusterOnly(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{
		"clusterTrustBundle: {name: ca, path: ca.pem}":                                   trustBundles,
		"clusterTrustBundle: {signerName: example.com/a, path: ca.pem, optional: false}": trustBundles,
		"clusterTrustBundle: {name: ca, path: ca.pem, optional: true}":                   "",
		"podCertificate: {signerName: example.com/a, keyType: ED25519}":                  certificates,
		"configMap: {name: a}":               "",
		"serviceAccountToken: {path: token}": "",
		"downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}": "",
	} {
		source := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &source))
		found := sourceObstacles(document.Of(source), "v")
		if kind == "" {
			assert.Empty(t, found, text)
		} else if assert.Len(t, found, 1, text) {
			assert.Equal(t, kind, found[0].kind, text)
			assert.Contains(t, found[0].problem, "spec.volumes v", text)
		}
	}
}

// TestReferencesOfASpec checks that every field of a pod that names an object is read, and that each object is listed
// once.
func TestReferencesOfASpec(t *testing.T) {
	t.Parallel()
	spec := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`
enableServiceLinks: false
initContainers: [{envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]}]
containers: [{env: [{valueFrom: {configMapKeyRef: {name: c}}}, {valueFrom: {secretKeyRef: {name: d}}}, {value: x}]}]
ephemeralContainers: [{envFrom: [{configMapRef: {name: e}}, {configMapRef: {name: a}}]}]
imagePullSecrets: [{name: f}]
volumes: [{configMap: {name: g}}, {secret: {secretName: h}}, {projected: {sources: [{configMap: {name: i}}, {secret: {name: j}}]}}, {csi: {nodePublishSecretRef: {name: k}}},
  {azureFile: {secretName: l}}, {rbd: {secretRef: {name: m}}}, {emptyDir: {}}, {persistentVolumeClaim: {claimName: n}}]
resourceClaims: [{resourceClaimName: o}, {resourceClaimTemplateName: p}]`), &spec))
	var got []string
	for _, reference := range ReferencesOf(document.Of(spec)) {
		got = append(got, reference.Kind+" "+reference.Name)
	}
	assert.ElementsMatch(t, []string{"ConfigMap a", "Secret b", "ConfigMap c", "Secret d", "ConfigMap e", "Secret f", "ConfigMap g", "Secret h", "ConfigMap i", "Secret j", "Secret k",
		"Secret l", "Secret m", "PersistentVolumeClaim ", claimKind + " o", claimTemplateKind + " p"}, got)
	delete(spec, "enableServiceLinks")
	assert.Contains(t, ReferencesOf(document.Of(spec)), ReferencesOf(document.Of(map[string]any{}))[0], "all Services")
}
