// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package jsonpatch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStrings(t *testing.T) {
	owned := func(key string) bool { return key == "ours" }
	for name, tc := range map[string]struct {
		actual, desired map[string]string
		want            string
	}{
		"same":                    {map[string]string{"a": "1"}, map[string]string{"a": "1"}, "null"},
		"others stay":             {map[string]string{"theirs": "1"}, nil, "null"},
		"ours goes":               {map[string]string{"ours": "1"}, nil, `[{"op":"remove","path":"/m/ours","value":null}]`},
		"changed":                 {map[string]string{"a": "1"}, map[string]string{"a": "2"}, `[{"op":"add","path":"/m/a","value":"2"}]`},
		"keys are escaped":        {map[string]string{}, map[string]string{"x.io/a~b": ""}, `[{"op":"add","path":"/m/x.io~1a~0b","value":""}]`},
		"no map on the server":    {nil, map[string]string{"a": "1"}, `[{"op":"test","path":"/m","value":null},{"op":"add","path":"/m","value":{"a":"1"}}]`},
		"nothing and no map":      {nil, nil, "null"},
		"in a reproducible order": {map[string]string{"ours": "1"}, map[string]string{"b": "1", "a": "1"}, `[{"op":"add","path":"/m/a","value":"1"},{"op":"add","path":"/m/b","value":"1"},{"op":"remove","path":"/m/ours","value":null}]`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Strings("/m", tc.actual, tc.desired, owned).String(); got != tc.want {
				t.Errorf("patch = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestForGuardsTheObject(t *testing.T) {
	var p Patch
	p.Replace("/a", 1)
	patch, err := p.For("u-1")
	require.NoError(t, err)
	data, err := patch.Data(nil)
	want := `[{"op":"test","path":"/metadata/uid","value":"u-1"},{"op":"replace","path":"/a","value":1}]`
	if err != nil || string(data) != want {
		t.Errorf("patch = %s, %v, want %s", data, err, want)
	}
}
