// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"

	"github.com/stretchr/testify/assert"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func TestManifestsAreDecodedBeforeAnythingIsChanged(t *testing.T) {
	for name, test := range map[string]struct{ manifest, want string }{
		"good":           {"---\n# a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"1\"}\ndata: {a: \"2\"}\n", ""},
		"unknown kind":   {"apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: 1}\n", ""},
		"numeric name":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 2024}\n", "a ConfigMap that the API server would reject, 2024"},
		"numeric value":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {port: 80}\n", "a ConfigMap that the API server would reject, a"},
		"a field twice":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n", "not valid YAML"},
		"foreign field":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nspec: {}\n", `unknown field "spec"`},
		"second of them": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: true}\n", "a Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkManifest(clientgoscheme.Scheme, test.manifest)
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}
