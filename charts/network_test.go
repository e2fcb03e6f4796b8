// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/crds"
)

// TestNetworkCRDs checks that the network CRDs are installed only together with the controllers that use them, and that
// they stay when the release is uninstalled.
func TestNetworkCRDs(t *testing.T) {
	files, err := fs.Glob(crds.Network(), "*.yaml")
	require.NoError(t, err)
	for _, enabled := range []bool{false, true} {
		given := values(t, "pair")
		given["networking"] = map[string]any{"addresses": map[string]any{"enabled": enabled}}
		rendered := objects(t, given)
		args := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
		if !enabled {
			assert.NotContains(t, args, "--enable-network-addresses")
			for _, object := range rendered {
				assert.NotContains(t, key(object), "CustomResourceDefinition")
			}
			continue
		}
		assert.Contains(t, args, "--enable-network-addresses")
		for _, file := range files {
			text, err := fs.ReadFile(crds.Network(), file)
			require.NoError(t, err)
			want := &apiextensionsv1.CustomResourceDefinition{}
			require.NoError(t, yaml.UnmarshalStrict(text, want))
			found := get[*apiextensionsv1.CustomResourceDefinition](t, rendered, want.Name)
			assert.Equal(t, want.Spec, found.Spec)
			assert.Equal(t, "keep", found.Annotations["helm.sh/resource-policy"])
		}
	}
}
