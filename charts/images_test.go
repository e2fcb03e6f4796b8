// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

func TestImageName(t *testing.T) {
	for registry, want := range map[string]string{
		"registry.example.com/refract":       "registry.example.com/refract/virtual-kubelet",
		"registry.example.com/refract/":      "registry.example.com/refract/virtual-kubelet",
		"localhost:5000":                     "localhost:5000/virtual-kubelet",
		"https://registry.example.com":       "",
		"registry.example.com/refract:1.0":   "",
		"registry.example.com/Refract":       "",
		"registry.example.com/refract//":     "registry.example.com/refract/virtual-kubelet",
		"registry.example.com/re@sha256:abc": "",
		"registry.example.com/a//b":          "",
		"registry.example.com//":             "registry.example.com/virtual-kubelet",
		"registry.example.com:65536/refract": "",
		"registry.example.com:0/refract":     "",
		"registry.example.com:/refract":      "",
		"registry.example.com:5000/refract":  "registry.example.com:5000/refract/virtual-kubelet",
		"registry.example.com/-a":            "",
		"registry.example.com/a.":            "",
		"registry.example.com/a\n":           "",
		"[2001:db8::1]:5000/refract":         "[2001:db8::1]:5000/refract/virtual-kubelet",
		"":                                   "",
		"/refract":                           "",
	} {
		image, err := ImageName(registry, "virtual-kubelet")
		assert.Equal(t, want, image, registry)
		assert.Equal(t, want == "", err != nil, "%s: %v", registry, err)
	}
}

// TestImagesByDigest checks that the values of the chart can select an image by a version, by a digest, or by both.
func TestImagesByDigest(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct{ name, version, want string }{
		{"registry.example/controller-manager", "", "registry.example/controller-manager:" + AppVersion()},
		{"registry.example/controller-manager", "1.2", "registry.example/controller-manager:1.2"},
		{"registry.example/controller-manager", digest, "registry.example/controller-manager@" + digest},
		{"registry.example/controller-manager", "1.2@" + digest, "registry.example/controller-manager:1.2@" + digest},
		{"registry.example/controller-manager@" + digest, "", "registry.example/controller-manager@" + digest},
	} {
		vals := values(t, "provider")
		vals["controllerManager"] = map[string]any{"image": map[string]any{"name": test.name, "version": test.version}}
		for _, object := range objects(t, vals) {
			if deployment, ok := object.(*appsv1.Deployment); ok {
				require.Equal(t, test.want, deployment.Spec.Template.Spec.Containers[0].Image)
			}
		}
	}
	_, err := render(t, map[string]any{"discovery": map[string]any{"config": map[string]any{"clusterID": "home"}}, "controllerManager": map[string]any{"image": map[string]any{"name": "registry.example/controller-manager@" + digest, "version": "1.2"}}})
	require.ErrorContains(t, err, "controllerManager.image")
}
