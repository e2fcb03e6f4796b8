// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func entry(remote, phase any) map[string]any {
	return map[string]any{"remoteNamespace": remote, "phase": phase}
}

func TestParse(t *testing.T) {
	desired := map[string]any{"shop": "shop-a", "slow": "slow-a", "rival": "shop-a", "empty": "", "upper": "NOT_A_NAME", "pair-1": "same", "pair-2": "same", "other": "other-a"}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"desiredMapping": desired}, "status": map[string]any{"currentMapping": map[string]any{
		"uninvited": entry("kube-system", "Accepted"),
		"other":     entry("other-b", "Accepted"),
		"shop":      entry("shop-a", "Accepted"),
		"slow":      entry("slow-a", "CreationLoopBackOff"),
		// The entries rival and shop have the same remote namespace, but the provider has not accepted the entry rival.
		"rival":  entry("shop-a", "CreationLoopBackOff"),
		"going":  entry("going-a", "Terminating"),
		"empty":  entry("", "Accepted"),
		"upper":  entry("NOT_A_NAME", "Accepted"),
		"number": entry(int64(7), "Accepted"),
		"phase":  entry("phase-a", int64(1)),
		"list":   []any{"x"},
		"pair-1": entry("same", "Accepted"),
		"pair-2": entry("same", "Accepted"),
	}}}}
	got, problems, err := parseMap(object)
	require.NoError(t, err)
	if diff := cmp.Diff(map[string]string{"shop": "shop-a"}, got.remoteNamespaces); diff != "" {
		t.Errorf("remote namespaces (-want +got):\n%s", diff)
	}
	doubtful := map[string]bool{"empty": true, "upper": true, "number": true, "phase": true, "list": true, "pair-1": true, "pair-2": true, "other": true}
	if diff := cmp.Diff(doubtful, got.doubtful); diff != "" {
		t.Errorf("doubtful (-want +got):\n%s", diff)
	}
	if len(got.named) != 13 || len(problems) != 7 {
		t.Errorf("got %d entries and problems %q, want 13 and 7", len(got.named), problems)
	}
}

func TestParseWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		object map[string]any
		fails  bool
	}{
		"no status":               {map[string]any{}, false},
		"no mapping":              {map[string]any{"status": map[string]any{}}, false},
		"status is a string":      {map[string]any{"status": "x"}, true},
		"mapping is a list":       {map[string]any{"status": map[string]any{"currentMapping": []any{}}}, true},
		"mapping is null is fine": {map[string]any{"status": map[string]any{"currentMapping": nil}}, false},
	} {
		if _, _, err := parseMap(&unstructured.Unstructured{Object: tc.object}); (err != nil) != tc.fails {
			t.Errorf("%s: error %v, want one: %t", name, err, tc.fails)
		}
	}
}

func TestDiff(t *testing.T) {
	running := map[string]string{"same": "same-a", "moved": "moved-a", "gone": "gone-a", "doubtful": "doubtful-a"}
	next := table{remoteNamespaces: map[string]string{"same": "same-a", "moved": "moved-b", "new": "new-a"}, doubtful: map[string]bool{"doubtful": true}}
	want := namespaceChanges{stop: []string{"gone", "moved"}, start: map[string]string{"moved": "moved-b", "new": "new-a"}}
	if got := diffTable(running, next); !cmp.Equal(want, got, cmp.AllowUnexported(namespaceChanges{})) {
		t.Errorf("diff = %+v, want %+v", got, want)
	}
}
