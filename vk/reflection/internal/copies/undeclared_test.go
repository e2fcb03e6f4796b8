// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestFieldsThatAnAPIServerDoesNotKnowAreLeftOut(t *testing.T) {
	t.Parallel()
	parse := func(text string) (object map[string]any) {
		require.NoError(t, yaml.Unmarshal([]byte(text), &object))
		return object
	}
	const object = `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {a: 1, b: {c: 2, d: 3}, ports: [{name: http, e: 4}, {name: https, e: 5}]}}`
	for name, c := range map[string]struct{ text, want string }{
		"one field": {`failed to create typed patch object (shop/web; /v1, Kind=Service): .spec.a: field not declared in schema`,
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {b: {c: 2, d: 3}, ports: [{name: http, e: 4}, {name: https, e: 5}]}}`},
		"several, in lists, too": {"failed to create typed patch object (shop/web; /v1, Kind=Service): errors:\n  .spec.b.c: field not declared in schema\n  .spec.ports[port=80,protocol=\"TCP\"].e: field not declared in schema",
			`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {a: 1, b: {d: 3}, ports: [{name: http}, {name: https}]}}`},
		"what identifies an object": {`.metadata.a: field not declared in schema`, ""},
		"another error":             {`spec.a: Invalid value`, ""},
	} {
		rest := withoutUndeclared(&unstructured.Unstructured{Object: parse(object)}, errors.New(c.text))
		if c.want == "" {
			require.Nil(t, rest, name)
			continue
		}
		require.NotNil(t, rest, name)
		if diff := cmp.Diff(parse(c.want), rest.Object); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	require.Nil(t, withoutUndeclared(&unstructured.Unstructured{Object: parse(object)}, nil))
}
