// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"maps"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// What is kept of a spec says the same about its Secrets as the spec itself.
func TestSecretsOfAKeptSpec(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		`{}`: {},
		`{volumes: [{name: a, secret: {secretName: x}}, {name: b, emptyDir: {}}]}`:                                                                                                {},
		`{volumes: [{name: token, projected: {sources: [{configMap: {name: ca}}, {secret: {name: web-token}}]}}, {name: more, projected: {sources: [{secret: {name: other}}]}}]}`: {"token": "web-token", "more": "other"},
	} {
		spec, kept := map[string]any{}, map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		KeepSecrets(spec, kept)
		for what, have := range map[string]map[string]any{"the spec": spec, "what is kept": kept} {
			if got := maps.Collect(Secrets(have)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s has the Secrets %v, want %v", text, what, got, want)
			}
		}
	}
}
