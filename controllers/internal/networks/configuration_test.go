// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestRead(t *testing.T) {
	const spec = `spec: {remote: {cidr: {pod: [10.0.0.0/16, 10.1.0.0/16], external: [10.70.0.0/16]}}}`
	const remote = `remote: {cidr: {pod: [10.30.0.0/16, 10.31.0.0/16], external: [10.80.0.0/16]}}`
	for name, tc := range map[string]struct{ text, address, want, fault string }{
		"first range":           {spec + "\nstatus: {" + remote + `, conditions: [{type: NetworkCIDRsConfigured, status: "True", observedGeneration: 2}]}`, "10.0.3.4", "10.30.3.4", ""},
		"second range":          {spec + "\nstatus: {" + remote + "}", "10.1.3.4", "10.31.3.4", ""},
		"external range":        {spec + "\nstatus: {" + remote + "}", "10.70.3.4", "10.80.3.4", ""},
		"no range":              {spec + "\nstatus: {" + remote + "}", "192.0.2.1", "192.0.2.1", ""},
		"nothing":               {"{}", "10.0.3.4", "10.0.3.4", ""},
		"no status":             {spec, "", "", "status.remote.cidr.pod has 0 of 2 ranges"},
		"short list":            {spec + "\nstatus: {remote: {cidr: {pod: [10.30.0.0/16], external: [10.80.0.0/16]}}}", "", "", "status.remote.cidr.pod has 1 of 2 ranges"},
		"short external list":   {spec + "\nstatus: {remote: {cidr: {pod: [10.30.0.0/16, 10.31.0.0/16]}}}", "", "", "status.remote.cidr.external has 0 of 1 ranges"},
		"long list":             {"spec: {}\nstatus: {" + remote + "}", "", "", "status.remote.cidr.pod lists 2"},
		"an earlier generation": {spec + "\nstatus: {" + remote + `, conditions: [{type: NetworkCIDRsConfigured, status: "True", observedGeneration: 1}]}`, "", "", "of an earlier spec"},
		"condition":             {spec + "\nstatus: {" + remote + `, conditions: [{type: NetworkCIDRsConfigured, status: "False", reason: WaitingForNetworks, observedGeneration: 2}]}`, "", "", "NetworkCIDRsConfigured is False (WaitingForNetworks)"},
		"families":              {"spec: {remote: {cidr: {pod: [10.0.0.0/16]}}}\nstatus: {remote: {cidr: {pod: [\"fd00::/16\"]}}}", "", "", "not of the same IP family"},
		"no ranges":             {"spec: {remote: {cidr: {pod: [web]}}}\nstatus: {remote: {cidr: {pod: [10.30.0.0/16]}}}", "", "", `spec.remote.cidr.pod number 1, range "web" is not a CIDR`},
		"other types":           {"spec: {remote: {cidr: {pod: 10.0.0.0/16}}}", "", "", "reading Configuration tenant/turin"},
		"null":                  {"spec: null\nstatus: {remote: null, conditions: null}", "10.0.3.4", "10.0.3.4", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(tc.text), &object.Object))
			object.SetNamespace("tenant")
			object.SetName("turin")
			object.SetGeneration(2)
			known := read(object)
			if tc.fault != "" {
				if known.fault == nil || !strings.Contains(known.fault.Error(), tc.fault) {
					t.Errorf("fault = %v, want one with %q", known.fault, tc.fault)
				}
				return
			}
			if known.fault != nil {
				t.Fatal(known.fault)
			}
			if got, ok := known.all.Map(tc.address); got != tc.want || !ok {
				t.Errorf("%s is %q here, want %q", tc.address, got, tc.want)
			}
		})
	}
}

func TestTwoConfigurationsOfOneClusterAreOneTooMany(t *testing.T) {
	var found []any
	for _, name := range []string{"b", "a"} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetNamespace("tenant")
		object.SetName(name)
		found = append(found, object)
	}
	if known := readAll(found); known.fault == nil || !strings.Contains(known.fault.Error(), `["tenant/a" "tenant/b"]`) {
		t.Errorf("fault = %v, want both named", known.fault)
	}
}

// TestOnlyTheAcceptedConfigurationCounts checks that a Configuration that was refused or not processed yet does not
// invalidate the cluster's accepted Configuration.
func TestOnlyTheAcceptedConfigurationCounts(t *testing.T) {
	forge := func(namespace, conditions string) any {
		object := &unstructured.Unstructured{}
		text := `{spec: {remote: {cidr: {pod: [10.0.0.0/16]}}}, ` +
			`status: {remote: {cidr: {pod: [10.30.0.0/16]}}, conditions: [` + conditions + `]}}`
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		object.SetNamespace(namespace)
		object.SetName("turin")
		return object
	}
	accepted := forge("tenant", `{type: NetworkCIDRsConfigured, status: "True"}`)
	for name, other := range map[string]any{
		"refused": forge("elsewhere", `{type: NetworkCIDRsConfigured, status: "False", reason: WrongCluster}`),
		"new":     forge("elsewhere", ""),
	} {
		for _, found := range [][]any{{accepted, other}, {other, accepted}} {
			known := readAll(found)
			require.NoError(t, known.fault, name)
			mapped, ok := known.all.Map("10.0.3.4")
			require.True(t, ok)
			require.Equal(t, "10.30.3.4", mapped)
		}
	}
	require.ErrorContains(t, readAll([]any{accepted, accepted}).fault, "delete all but one")
}
