// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/pluginsource/signature"
)

const publicKey = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
`

// The controller manager reads the signature policy in the values. Declared plugins are disabled by default.
func TestDeclaredPlugins(t *testing.T) {
	given := values(t, "pair")
	given["plugins"] = map[string]any{"enabled": true, "insecureRegistries": []any{"a.svc:5000", "b.svc"}, "trust": map[string]any{
		"default": false, "prefixes": []any{map[string]any{"prefix": "registry.example.com/plugins", "mode": "Require", "keys": []any{publicKey}}},
	}}
	installed := objects(t, given)
	policy, err := signature.ParsePolicy([]byte(get[*corev1.ConfigMap](t, installed, "refract-plugin-trust").Data["policy.yaml"]))
	require.NoError(t, err)
	assert.Equal(t, signature.Off, policy.For("registry.example.com/other").Mode)
	decision := policy.For("registry.example.com/plugins/a")
	assert.Equal(t, signature.Require, decision.Mode)
	assert.Len(t, decision.Keys, 1)
	pod := get[*appsv1.Deployment](t, installed, "refract-controller-manager").Spec.Template.Spec
	assert.Subset(t, pod.Containers[0].Args, []string{"--enable-declared-plugins", "--plugin-trust-policy=/etc/refract/plugin-trust/policy.yaml", "--plugin-insecure-registries=a.svc:5000,b.svc"})
	assert.True(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == "refract-plugin-trust" }))

	delete(given, "plugins")
	for _, object := range objects(t, given) {
		named := object.GetName()
		assert.False(t, strings.HasSuffix(named, "-plugin-trust") || strings.HasSuffix(named, "-plugins") || strings.HasSuffix(named, "-plugin-sources"), "%T %s", object, named)
		if deployment, ok := object.(*appsv1.Deployment); ok {
			assert.NotContains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--enable-declared-plugins")
		}
	}
}
