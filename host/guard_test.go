// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
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
		path   string // path that the error must contain
	}{
		"labels":                       {`"metadata.labels"`, nil, []step{set("metadata.labels.x", "1"), remove("metadata.labels.app")}, ""},
		"outside of the manifest":      {`"metadata.labels"`, nil, []step{set("spec.type", "x")}, "spec.type"},
		"above the manifest":           {`"spec.type"`, nil, []step{remove("spec")}, "spec"},
		"made on the way":              {`"spec.new.deep"`, nil, []step{set("spec.new.deep", "1")}, ""},
		"made beside":                  {`"spec.new.deep"`, nil, []step{set("spec.new.other", "1")}, "spec.new.other"},
		"replaced on the way":          {`"spec.selector.app"`, nil, []step{{"set_map", []any{1, "spec.selector"}}, set("spec.selector.app", "x")}, "spec.selector.tier"},
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
		"labels copied into the label": {`"metadata"`, nil, []step{{"copy", []any{1, "metadata.labels[offloading.liqo.io/destination]", 2}}}, "metadata.labels[offloading.liqo.io/destination].apiServerSupport"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, h, "p", assembleGuest("p", c.writes, returnZero, c.steps...), PluginConfig{Writes: c.narrow})
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

// TestGuardBlames checks that the error names the second plugin if this plugin edits a path that only the first
// plugin may write.
func TestGuardBlames(t *testing.T) {
	h := newHost(t)
	first := mustLoad(t, h, "first", assembleGuest("first", `"spec"`, returnZero, set("spec.x", "1")), PluginConfig{})
	second := mustLoad(t, h, "second", assembleGuest("second", `"metadata.labels"`, returnZero, set("spec.y", "1")), PluginConfig{})
	_, _, err := run(t, serviceObject(), first, second)
	var e *GuardError
	if !errors.As(err, &e) || e.Plugin != "second" || e.Path != "spec.y" {
		t.Errorf("%v", err)
	}
}

// TestGuardJudgesEachPlugin checks that the last plugin that edits a list is not blamed for the edits of earlier
// plugins.
func TestGuardJudgesEachPlugin(t *testing.T) {
	h := newHost(t)
	reshapes := mustLoad(t, h, "reshapes", assembleGuest("reshapes", `"metadata.labels"`, returnZero, step{"remove_elem", []any{step{"get", []any{1, "spec.ports"}}, 0}}), PluginConfig{})
	allowed := mustLoad(t, h, "allowed", assembleGuest("allowed", `"spec"`, returnZero, set("spec.ports.-", "x")), PluginConfig{})
	_, _, err := run(t, serviceObject(), reshapes, allowed)
	var e *GuardError
	if !errors.As(err, &e) || e.Plugin != "reshapes" || e.Path != "spec.ports" {
		t.Errorf("%v, want reshapes refused at spec.ports", err)
	}
}

// TestGuardSeesWhatIsLeftBehind checks that an empty map that remains after a value was set and removed counts as an
// edit, because empty maps can have a meaning.
func TestGuardSeesWhatIsLeftBehind(t *testing.T) {
	h := newHost(t)
	for path, object := range map[string]map[string]any{
		"spec.ingress[0].from[0].namespaceSelector": {"spec": map[string]any{"ingress": []any{map[string]any{"from": []any{map[string]any{}}}}}},
		"spec.volumes[0].emptyDir":                  {"spec": map[string]any{"volumes": []any{map[string]any{"name": "x"}}}},
		"metadata.ownerReferences":                  {"metadata": map[string]any{"name": "x"}},
	} {
		p := mustLoad(t, h, "p", assembleGuest("p", `"metadata.labels"`, returnZero, set(path+".x", "y"), remove(path+".x")), PluginConfig{})
		_, _, err := run(t, object, p)
		var e *GuardError
		if !errors.As(err, &e) || e.Path != path {
			t.Errorf("%v, want %s refused", err, path)
		}
	}
}

func TestIgnoredFailureCoversTheGuard(t *testing.T) {
	h := newHost(t)
	lax := PluginConfig{IgnoreFailure: true}
	for name, bad := range map[string]step{
		"host network": {"set_bool", []any{1, "spec.hostNetwork", 1}},
		"identity":     set("metadata.name", "x"),
		"undeclared":   set("status.x", "y"),
	} {
		good := mustLoad(t, h, "good", assembleGuest("good", `"spec"`, returnZero, set("spec.good", "1")), PluginConfig{})
		wild := mustLoad(t, h, "wild", assembleGuest("wild", `"spec","metadata.name"`, returnZero, set("spec.wild", "1"), bad), lax)
		got, out, err := run(t, serviceObject(), good, wild, good)
		want := serviceObject()
		want["spec"].(map[string]any)["good"] = "1"
		if err != nil || !reflect.DeepEqual(got, want) || len(out.Warnings) != 1 {
			t.Errorf("%s: %v, %v, %v", name, err, out.Warnings, got)
		}
	}
}

// TestMarksOfTheEngine checks that plugins cannot forge the labels and annotations, with one of two prefixes, that
// identify the owner of a copy.
func TestMarksOfTheEngine(t *testing.T) {
	h := newHost(t)
	for _, field := range []string{"labels", "annotations"} {
		for _, key := range []string{"plugins.refract.io/applied-hash", "plugins.refract.io/anything", "offloading.liqo.io/origin", "offloading.liqo.io/anything"} {
			path := "metadata." + field + "[" + key + "]"
			p := mustLoad(t, h, "p", assembleGuest("p", `"metadata"`, returnZero, set(path, "x")), PluginConfig{})
			var e *GuardError
			if _, _, err := run(t, serviceObject(), p); !errors.As(err, &e) || e.Path != path {
				t.Errorf("%v, want %s refused", err, path)
			}
		}
	}
}

// TestPodTemplates checks that host namespaces are disabled at every path of a pod spec.
func TestPodTemplates(t *testing.T) {
	h := newHost(t)
	for kind, c := range map[string]struct {
		configured []string
		spec       string
	}{
		"Deployment.apps":        {nil, "spec.template.spec"},
		"Job.batch":              {nil, "spec.template.spec"},
		"CronJob.batch":          {nil, "spec.jobTemplate.spec.template.spec"},
		"MPIJob.kubeflow.org":    {[]string{"spec.replicas.*.template.spec"}, "spec.replicas.worker.template.spec"},
		"RayCluster.ray.io":      {[]string{"spec.groups.*.template.spec"}, "spec.groups[1].template.spec"},
		"Pod.example.com":        {nil, ""},
		"Deployment.example.com": {nil, ""},
	} {
		t.Run(kind, func(t *testing.T) {
			path := c.spec + ".hostPID"
			if c.spec == "" {
				path = "spec.template.spec.hostPID"
			}
			object := func(on string) map[string]any {
				pod := `{"spec":{"x":"y"` + on + `}}`
				return decodeObject(t, `{"spec":{"template":`+pod+`,"jobTemplate":{"spec":{"template":`+pod+`}},"replicas":{"worker":{"template":`+pod+
					`}},"groups":[{},{"template":`+pod+`}]}}`)
			}
			chain := func(plugins ...*Plugin) *Chain {
				chain, err := NewChain(Outgoing, DefaultGuard(kind, c.configured...), plugins...)
				require.NoError(t, err)
				return chain
			}
			doc := document.New()
			doc.Reset(object(""))
			p := mustLoad(t, h, "p", assembleGuest("p", `"*"`, returnZero, step{"set_bool", []any{1, path, 1}}), PluginConfig{})
			_, err := chain(p).Run(t.Context(), doc, &Env{})
			var e *GuardError
			if c.spec == "" {
				assert.NoError(t, err, "no pod is there")
				return
			}
			if !errors.As(err, &e) || e.Path != path || e.Plugin != "p" {
				t.Errorf("%v, want %s refused", err, path)
			}
			// The boolean is already set in the object, so it must be removed, and no plugin must be blamed.
			doc.Reset(object(`,"hostPID":true`))
			_, err = chain().Run(t.Context(), doc, &Env{})
			require.NoError(t, err)
			if v, _ := doc.Root().At(path); v.Exists() {
				t.Errorf("%s is still on", path)
			}
		})
	}
}

func TestKindsAreWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		kinds       []string
		kind, group string
		want        bool
	}{
		{[]string{"Service"}, "Service", "", true},
		{[]string{"Service"}, "Service", "serving.knative.dev", false},
		{[]string{"Pod"}, "Pod", "example.com", false},
		{[]string{"Secret"}, "Secret", "example.com", false},
		{[]string{"Service.serving.knative.dev"}, "Service", "serving.knative.dev", true},
		{[]string{"Ingress"}, "Ingress", "networking.k8s.io", true},
		{[]string{"Ingress"}, "Ingress", "example.com", false},
		{[]string{"Ingress.networking.k8s.io"}, "Ingress", "networking.k8s.io", true},
		{[]string{"EndpointSlice"}, "EndpointSlice", "discovery.k8s.io", true},
		{[]string{"*"}, "Widget", "example.com", true},
		{[]string{"*"}, "Secret", "example.com", true},
		{[]string{"*"}, "Secret", "", false},
		{[]string{"*", "Secret"}, "Secret", "", true},
	} {
		if got := MatchesKind(c.kinds, c.kind, c.group); got != c.want {
			t.Errorf("%q for %s of %q: %t", c.kinds, c.kind, c.group, got)
		}
	}
}

func TestSkipIsACapability(t *testing.T) {
	m := newModule()
	skip := m.importFunc(moduleRefract, "skip", []byte{i32, i32}, nil)
	m.plugin(`{"name":"p","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["*"]}`)
	m.function("outgoing", nil, []byte{i32}, []byte{0x41, 0, 0x41, 4, 0x10, byte(skip), 0x41, 0})
	p := mustLoad(t, newHost(t), "p", m.bytes(), PluginConfig{})
	_, out, err := run(t, serviceObject(), p)
	var e *AccessError
	if !errors.As(err, &e) || out.Skipped {
		t.Errorf("%v, skipped %t", err, out.Skipped)
	}
}

func TestGuardTurnsInheritedOff(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"hostNetwork": true, "hostIPC": false, "x": "y"}}
	got, out, err := run(t, object)
	want := map[string]any{"spec": map[string]any{"hostIPC": false, "x": "y"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if len(out.Warnings) != 1 || !strings.HasPrefix(out.Warnings[0].Message, "spec.hostNetwork is off") {
		t.Errorf("the removal causes no warning: %v", out.Warnings)
	}
	if object["spec"].(map[string]any)["hostNetwork"] != true {
		t.Error("the object in the cache changed")
	}
}

// TestGuardKeepsHostNamespacesOnRequest checks that in a pod with the annotation, hostPID and hostIPC stay, because the
// provider decides about them, but hostNetwork is removed, and that the guard does not check for the annotation in pod
// templates.
func TestGuardKeepsHostNamespacesOnRequest(t *testing.T) {
	pod := func(annotation string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"plugins.refract.io/host-namespaces": annotation}},
			"spec":     map[string]any{"hostNetwork": true, "hostPID": true, "hostIPC": true},
		}
	}
	for annotation, want := range map[string]map[string]any{"keep": {"hostPID": true, "hostIPC": true}, "drop": {}, "": {}} {
		got, out, err := run(t, pod(annotation))
		if err != nil || !reflect.DeepEqual(got["spec"], want) || len(out.Warnings) != 3-len(want) {
			t.Errorf("annotation %q: %v, warnings %v, %v, want %v", annotation, got["spec"], out.Warnings, err, want)
		}
	}
	service := DefaultGuard("Deployment.apps")
	if service.KeptOff != nil {
		t.Errorf("a template keeps %v", service.KeptOff)
	}
}
