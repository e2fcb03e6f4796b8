// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"reflect"
	"testing"
)

func TestGuard(t *testing.T) {
	h := newHost(t)
	object := func() map[string]any {
		o := serviceObject()
		o["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"uid": "1"}}
		o["metadata"].(map[string]any)["finalizers"] = []any{"keep"}
		return o
	}
	json := func(path, text string) step { return step{"set_json", []any{1, path, text}} }
	for name, c := range map[string]struct {
		writes string
		narrow []string
		steps  []step
		path   string // that is refused
	}{
		"labels":                       {`"metadata.labels"`, nil, []step{set("metadata.labels.x", "1"), remove("metadata.labels.app")}, ""},
		"outside of the manifest":      {`"metadata.labels"`, nil, []step{set("spec.type", "x")}, "spec.type"},
		"above the manifest":           {`"spec.type"`, nil, []step{remove("spec")}, "spec"},
		"made on the way":              {`"spec.new.deep"`, nil, []step{set("spec.new.deep", "1")}, ""},
		"made beside":                  {`"spec.new.deep"`, nil, []step{set("spec.new.other", "1")}, "spec.new.other"},
		"replaced on the way":          {`"spec.selector.app"`, nil, []step{{"set_map", []any{1, "spec.selector"}}, set("spec.selector.app", "x")}, "spec.selector"},
		"wildcard":                     {`"spec.ports.*.nodePort"`, nil, []step{remove("spec.ports.*.nodePort")}, ""},
		"outside of the wildcard":      {`"spec.ports.*.nodePort"`, nil, []step{remove("spec.ports.*.port")}, "spec.ports[0].port"},
		"list grown":                   {`"spec.ports.*.nodePort"`, nil, []step{set("spec.ports.-", "x")}, "spec.ports"},
		"element of a list":            {`"spec.ports.1"`, nil, []step{set("spec.ports[1].name", "x")}, ""},
		"other element":                {`"spec.ports.1"`, nil, []step{set("spec.ports[0].name", "x")}, "spec.ports[0].name"},
		"narrowed":                     {`"spec"`, []string{"spec.type"}, []step{set("spec.x", "1")}, "spec.x"},
		"narrowed, within":             {`"spec"`, []string{"spec.type"}, []step{set("spec.type", "1")}, ""},
		"wider than the manifest":      {`"spec.type"`, []string{"*"}, []step{set("spec.x", "1")}, "spec.x"},
		"name":                         {`"*"`, nil, []step{set("metadata.name", "x")}, "metadata.name"},
		"same name":                    {`"*"`, nil, []step{set("metadata.name", "frontend")}, ""},
		"kind removed":                 {`"*"`, nil, []step{remove("kind")}, "kind"},
		"metadata removed":             {`"*"`, nil, []step{remove("metadata")}, "metadata"},
		"metadata with another name":   {`"*"`, nil, []step{json("metadata", `{"name":"x","namespace":"shop"}`)}, "metadata.name"},
		"metadata with the same name":  {`"*"`, nil, []step{json("metadata", `{"name":"frontend","namespace":"shop","labels":{"a":"b"}}`)}, ""},
		"label of ownership":           {`"*"`, nil, []step{set("metadata.labels[offloading.liqo.io/origin]", "x")}, "metadata.labels[offloading.liqo.io/origin]"},
		"owner references removed":     {`"*"`, nil, []step{remove("metadata.ownerReferences\nmetadata.finalizers\nmetadata.uid")}, ""},
		"owner reference forged":       {`"*"`, nil, []step{set("metadata.ownerReferences[0].uid", "2")}, "metadata.ownerReferences[0].uid"},
		"finalizer added":              {`"*"`, nil, []step{set("metadata.finalizers.-", "x")}, "metadata.finalizers"},
		"uid":                          {`"*"`, nil, []step{set("metadata.uid", "x")}, "metadata.uid"},
		"host network":                 {`"*"`, nil, []step{{"set_bool", []any{1, "spec.hostNetwork", 1}}}, "spec.hostNetwork"},
		"host network with the spec":   {`"*"`, nil, []step{json("spec", `{"hostPID":true}`)}, "spec.hostPID"},
		"host network explicitly off":  {`"*"`, nil, []step{{"set_bool", []any{1, "spec.hostNetwork", 0}}}, ""},
		"labels copied into the label": {`"metadata"`, nil, []step{{"copy", []any{1, "metadata.labels[offloading.liqo.io/destination]", 2}}}, "metadata.labels[offloading.liqo.io/destination]"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, h, "p", guest("p", c.writes, returnZero, c.steps...), PluginConfig{Writes: c.narrow})
			_, _, err := run(t, object(), p)
			var e *GuardError
			switch {
			case c.path == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.path != "" && (!errors.As(err, &e) || e.Path != c.path || e.Plugin != "p"):
				t.Errorf("%v, want %s refused", err, c.path)
			}
		})
	}
}

// TestGuardBlames: the edit of the second plugin lies where only the first may write.
func TestGuardBlames(t *testing.T) {
	h := newHost(t)
	first := mustLoad(t, h, "first", guest("first", `"spec"`, returnZero, set("spec.x", "1")), PluginConfig{})
	second := mustLoad(t, h, "second", guest("second", `"metadata.labels"`, returnZero, set("spec.y", "1")), PluginConfig{})
	_, _, err := run(t, serviceObject(), first, second)
	var e *GuardError
	if !errors.As(err, &e) || e.Plugin != "second" || e.Path != "spec.y" {
		t.Errorf("%v", err)
	}
}

func TestGuardTurnsInheritedOff(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"hostNetwork": true, "hostIPC": false, "x": "y"}}
	got, _, err := run(t, object)
	want := map[string]any{"spec": map[string]any{"hostIPC": false, "x": "y"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if object["spec"].(map[string]any)["hostNetwork"] != true {
		t.Error("the object in the cache changed")
	}
}
