// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/printable"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

// TestMalformedSpecs checks that specs that the schema of ReflectedResources forbids are rejected with a message. Such
// specs are possible if another version of the definition is installed.
func TestMalformedSpecs(t *testing.T) {
	for spec, words := range map[string]string{
		"null": "spec is missing",
		"7":    "spec is missing",
		"[]":   "spec is missing",
		"{group: 7, version: v1, resource: widgets}":                    "spec is invalid",
		"{group: x.org, version: v1, resource: widgets, workers: many}": "spec is invalid",
		"{group: x.org, version: v1, resource: widgets, target: v1}":    "spec is invalid",
		"{}": "spec.version",
		"{group: x.org, version: one, resource: widgets}":                                                               "spec.version",
		"{group: x.org, version: v1, resource: Widgets}":                                                                "spec.resource",
		"{group: x.org, version: v1, resource: widgets/status}":                                                         "spec.resource",
		"{group: x org, version: v1, resource: widgets}":                                                                "spec.group",
		"{group: x.org, version: v1, resource: gadgets}":                                                                "must have that name",
		"{group: x.org, version: v1, resource: widgets, policy: Deny}":                                                  "spec.policy",
		"{group: x.org, version: v1, resource: widgets, workers: -1}":                                                   "spec.workers",
		"{group: x.org, version: v1, resource: widgets, target: {version: x}}":                                          "spec.target.version",
		"{group: x.org, version: v1, resource: widgets, target: {version: v1}}":                                         "spec.target.resource",
		"{version: v1, resource: pods}":                                                                                 "always reflected",
		"{group: events.k8s.io, version: v1, resource: events}":                                                         "always reflected",
		"{group: plugins.refract.io, version: v1alpha1, resource: reflectedresources}":                                  "reflection itself",
		"{group: x.org, version: v1, resource: widgets, target: {version: v1, resource: pods}}":                         "which other controllers write",
		"{group: x.org, version: v1, resource: widgets, target: {group: events.k8s.io, version: v1, resource: events}}": "which other controllers write",
	} {
		object := parse(t, "{metadata: {name: widgets.x.org}, spec: "+spec+"}")
		_, err := decodeSpec(object)
		var found *fault
		if !errors.As(err, &found) || !strings.Contains(err.Error(), words) || found.reason != pluginsv1alpha1.NotReflectableReason || !found.final {
			t.Errorf("%s: %v, want a final fault with %q", spec, err, words)
		}
	}
	spec, err := decodeSpec(parse(t, "{metadata: {name: widgets.x.org}, spec: {group: x.org, version: v1, resource: widgets}}"))
	if err != nil || *spec.Workers != 3 || spec.Policy != pluginsv1alpha1.DenyListPolicy {
		t.Errorf("the defaults are %+v, %v", spec, err)
	}
}

func TestDefinitionsAreCopiedWithoutWhatIsNotTheirs(t *testing.T) {
	const original = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.k8s.io
  uid: u
  resourceVersion: "7"
  labels: {team: a}
  finalizers: [customresourcecleanup.apiextensions.k8s.io]
  annotations: {api-approved.kubernetes.io: "https://example.org/1", cert-manager.io/inject-ca-from: a/b}
spec:
  group: k8s.io
  future: {field: kept}
  conversion: %s
  versions: [{name: v1, storage: false, served: true}, {name: v2, storage: true, served: true, schema: {x: 1}}]
status: {storedVersions: [v1, v2]}`
	const metadata = "name: widgets.k8s.io, annotations: {plugins.refract.io/copied-from: rome, api-approved.kubernetes.io: 'https://example.org/1'}"
	for name, c := range map[string]struct{ conversion, version, versions, err string }{
		"none":                {"{strategy: None}", "v1", "[{name: v1, storage: false, served: true}, {name: v2, storage: true, served: true, schema: {x: 1}}]", ""},
		"webhook, stored":     {"{strategy: Webhook, webhook: {clientConfig: {}}}", "v2", "[{name: v2, storage: true, served: true, schema: {x: 1}}]", ""},
		"webhook, not stored": {"{strategy: Webhook, webhook: {clientConfig: {}}}", "v1", "", "set spec.version to the stored one, v2"},
	} {
		got, err := portableDefinition(parse(t, strings.ReplaceAll(original, "%s", c.conversion)), c.version, "rome")
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			continue
		}
		want := parse(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {"+metadata+"}, spec: {group: k8s.io, future: {field: kept}, versions: "+c.versions+"}}")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestWhyADefinitionIsNotServed(t *testing.T) {
	got := unservedReason(parse(t, `status: {conditions: [{type: NamesAccepted, status: "False", message: kind is taken}, {type: Established, status: "False", message: names}, {type: Other, status: "False"}]}`))
	if want := ": NamesAccepted is False, kind is taken; Established is False, names"; got != want {
		t.Errorf("state %q, want %q", got, want)
	}
}

func TestNamespacesInMessages(t *testing.T) {
	for want, namespaces := range map[string][]string{
		"": {""}, " in namespace a": {"a"}, " in namespaces a, b, c": {"a", "b", "c"}, " in namespaces a, b, c and 2 more": {"a", "b", "c", "d", "e"},
	} {
		if got := listNamespaces(namespaces); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzObjects checks that no object causes a panic, and that every error is a fault.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		"{}", "null", `{"spec":{"group":"x.org","version":"v1","resource":"widgets","target":{},"workers":1}}`,
		`{"metadata":{"name":7},"spec":{"versions":[7,{"storage":"yes"}],"conversion":{"strategy":"Webhook"}},"status":{"virtualNodes":[{"name":"n","conditions":[{"type":1}]}],"conditions":[7]}}`,
	} {
		f.Add([]byte(seed))
	}
	follower := &Follower{options: Options{NodeName: "n", RemoteClusterID: "milan"}.withDefaults(), reported: map[string]reported{}}
	f.Fuzz(func(t *testing.T, text []byte) {
		object := &unstructured.Unstructured{}
		if json.Unmarshal(text, &object.Object) != nil {
			return
		}
		spec, err := decodeSpec(object)
		var found *fault
		if err != nil && !errors.As(err, &found) {
			t.Errorf("%s: %v is no fault", text, err)
		}
		if err == nil && (spec.Workers == nil || spec.Policy == "") {
			t.Errorf("%s: %+v", text, spec)
		}
		present := follower.ownEntry(object)
		wanted := follower.desiredEntry(object, present, condition{reason: "Paused"})
		if len(wanted.Conditions) != 1 || present != nil && equalEntries(*present, wanted) && len(present.Conditions) != 1 {
			t.Errorf("%s: %+v", text, wanted)
		}
		_, _ = portableDefinition(object, "v1", "rome")
		_ = unservedReason(object)
	})
}

// TestMessagesAreLines checks that a message with text from another cluster has only one line. Only messages with rules
// to add may have several lines.
func TestMessagesAreLines(t *testing.T) {
	follower := &Follower{options: Options{NodeName: "milan", Clock: clock.RealClock{}}}
	message := func(reason, text string) string {
		return follower.desiredEntry(parse(t, "{}"), nil, condition{reason: reason, message: text}).Conditions[0].Message
	}
	require.Equal(t, `no\u001b[2J such: everything is fine`, message(pluginsv1alpha1.UnreachableReason, "no\x1b[2J such:\neverything  is fine"))
	require.Equal(t, "add:\n- verbs", message(pluginsv1alpha1.MissingPermissionReason, "add:\n- verbs"))
	require.LessOrEqual(t, len(message(pluginsv1alpha1.UnreachableReason, strings.Repeat("x", 1<<20))), printable.MaxMessage)
}
