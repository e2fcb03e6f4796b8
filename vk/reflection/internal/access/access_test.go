// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"maps"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestSecretsOfAKeptSpec checks that a reduced spec contains the same projected Secrets as the original spec.
func TestSecretsOfAKeptSpec(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		`{}`: {},
		`{volumes: [{name: a, secret: {secretName: x}}, {name: b, emptyDir: {}}]}`:                                                                                                {},
		`{volumes: [{name: token, projected: {sources: [{configMap: {name: ca}}, {secret: {name: web-token}}]}}, {name: more, projected: {sources: [{secret: {name: other}}]}}]}`: {"token": "web-token", "more": "other"},
	} {
		spec, kept := map[string]any{}, map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
		KeepSecrets(spec, kept)
		for what, have := range map[string]map[string]any{"the spec": spec, "what is kept": kept} {
			if got := maps.Collect(Secrets(have)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s has the Secrets %v, want %v", text, what, got, want)
			}
		}
	}
}

func TestMountsSecret(t *testing.T) {
	t.Parallel()
	spec := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`{volumes: [{name: all, projected: {sources: [{configMap: {name: ca}}, {secret: {name: web-token}}]}}]}`), &spec))
	if !MountsSecret(spec["volumes"], "web-token") || MountsSecret(spec["volumes"], "ca") {
		t.Error("only the Secret that is projected is mounted")
	}
}

func TestServiceAccount(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"web": "web", "": "default"} {
		pod := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"serviceAccountName": name}}}
		if got := ServiceAccount(pod); got != want {
			t.Errorf("a pod with %q runs as %q, want %q", name, got, want)
		}
	}
}
