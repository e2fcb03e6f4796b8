// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// matrixKind describes the objects of a kind in the matrix. An object that is reflected contains the word "fast".
type matrixKind struct {
	kind, head   string // head is the beginning of the manifest, up to metadata.
	content, old string // content of local objects, and of outdated copies
	fast, slow   func(*unstructured.Unstructured) error
	slower       string // patch that replaces the word fast by slow
}

var matrixKinds = []matrixKind{
	{
		kind: reflection.ServiceKind, head: "apiVersion: v1, kind: Service",
		content: `spec: {selector: {mode: fast}, ports: [{name: http, port: 80, targetPort: 8080}]}`,
		old:     `spec: {ports: [{name: old, port: 9999}]}`,
		fast:    reflectiontest.Field("spec.selector.mode", "fast"), slow: onlyPort("https"),
		slower: `{spec: {selector: {mode: slow}, ports: [{name: https, port: 443}]}}`,
	},
	{
		kind: "Ingress", head: "apiVersion: networking.k8s.io/v1, kind: Ingress",
		content: `spec: {defaultBackend: {service: {name: fast, port: {number: 80}}}}`,
		old:     `spec: {defaultBackend: {service: {name: old, port: {name: http}}}}`,
		fast:    reflectiontest.Field("spec.defaultBackend.service.name", "fast"), slow: reflectiontest.Field("spec.defaultBackend.service.name", "slow"),
		slower: `{spec: {defaultBackend: {service: {name: slow}}}}`,
	},
	{
		kind: reflection.ConfigMapKind, head: "apiVersion: v1, kind: ConfigMap",
		content: `data: {mode: fast}`, old: `data: {mode: old}`,
		fast: reflectiontest.Field("data.mode", "fast"), slow: reflectiontest.Field("data.mode", "slow"), slower: `{data: {mode: slow}}`,
	},
	{
		kind: reflection.SecretKind, head: "apiVersion: v1, kind: Secret",
		content: `stringData: {mode: fast}`, old: `stringData: {mode: old}`,
		fast: reflectiontest.Field("data.mode", "ZmFzdA=="), slow: reflectiontest.Field("data.mode", "c2xvdw=="), slower: `{data: {mode: c2xvdw==}}`,
	},
	{
		kind: "NetworkPolicy", head: "apiVersion: networking.k8s.io/v1, kind: NetworkPolicy",
		content: `spec: {podSelector: {matchLabels: {mode: fast}}, ingress: [{from: [{podSelector: {}}]}]}`,
		old:     `spec: {podSelector: {matchLabels: {mode: old}}, ingress: [{}]}`,
		fast:    reflectiontest.Field("spec.podSelector.matchLabels.mode", "fast"), slow: reflectiontest.Field("spec.podSelector.matchLabels.mode", "slow"),
		slower: `{spec: {podSelector: {matchLabels: {mode: slow}}}}`,
	},
	{
		kind: "PodDisruptionBudget", head: "apiVersion: policy/v1, kind: PodDisruptionBudget",
		content: `spec: {maxUnavailable: 1, selector: {matchLabels: {mode: fast}}}`,
		old:     `spec: {maxUnavailable: 5, selector: {matchLabels: {mode: old}}}`,
		fast:    reflectiontest.Field("spec.selector.matchLabels.mode", "fast"), slow: reflectiontest.Field("spec.selector.matchLabels.mode", "slow"),
		slower: `{spec: {selector: {matchLabels: {mode: slow}}}}`,
	},
}

// onlyPort returns a check that a Service has the new selector and the port want, and no longer the port http. A port
// that another client has requested is ignored.
func onlyPort(want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		found := false
		ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports")
		for _, port := range ports {
			name := raw.Map(port)["name"]
			found = found || name == want
			if name == "http" {
				return errors.New("the port that is no longer desired is there")
			}
		}
		if !found {
			return fmt.Errorf("port %s is missing from %v", want, ports)
		}
		return reflectiontest.Field("spec.selector.mode", "slow")(object)
	}
}

func (k *matrixKind) object(name, labels, annotations, content string) string {
	return fmt.Sprintf("{%s, metadata: {name: %s, labels: {%s}, annotations: {%s}}, %s}", k.head, name, labels, annotations, content)
}

// matrixRow describes an object that exists on neither, one or both sides before the manager starts, and the expected
// result.
type matrixRow struct {
	name   string
	absent bool   // the local object does not exist
	notes  string // annotations of the local object
	there  string // object on the provider: none, our copy, or an object of another owner
	want   string
	event  []string // words of the expected Event, if one is expected
}

const (
	managed, foreign               = "managed", "foreign"
	crosses, stays, goes, asItWas  = "crosses", "stays", "goes", "as it was"
	skipTrue, skipFalse, skipOther = `liqo.io/skip-reflection: "true"`, `liqo.io/skip-reflection: "False"`, `liqo.io/skip-reflection: maybe`
	allowTrue, allowFalse          = `liqo.io/allow-reflection: "True"`, `liqo.io/allow-reflection: "false"`
)

const skip, allow = wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation

var matrix = map[reflection.Policy][]matrixRow{
	reflection.DenyList: {
		{name: "new", want: crosses},
		{name: "stale", there: managed, want: crosses},
		{name: "taken", there: foreign, want: asItWas, event: []string{"Warning", "FailedReflection", "is not managed by Refract", "rename"}},
		{name: "deleted-while-down", absent: true, there: managed, want: goes},
		{name: "other", absent: true, there: foreign, want: asItWas},
		{name: "skipped", notes: skipTrue, want: stays},
		{name: "skipped-later", notes: `liqo.io/skip-reflection: ""`, there: managed, want: goes, event: []string{"Normal", "ReflectionDisabled", "skip-reflection"}},
		{name: "skipped-taken", notes: skipTrue, there: foreign, want: asItWas},
		{name: "not-skipped", notes: skipFalse, want: crosses},
		{name: "allowed-needlessly", notes: allowTrue, want: crosses},
		{name: "odd", notes: skipOther, there: managed, want: asItWas, event: []string{"Warning", "InvalidObject", `"maybe"`, `want "true" or "false"`}},
		{name: "odd-new", notes: skipOther, want: stays, event: []string{"Warning", "InvalidObject", `"maybe"`}},
		{name: "both", notes: skipTrue + ", " + allowTrue, there: managed, want: asItWas, event: []string{"Warning", "InvalidObject", "both", "keep one"}},
		{name: "both-agree", notes: skipFalse + ", " + allowTrue, want: crosses},
		{name: "odd-needlessly", notes: `liqo.io/allow-reflection: nope`, there: managed, want: asItWas, event: []string{"Warning", "InvalidObject", "allow-reflection", `"nope"`}},
	},
	reflection.AllowList: {
		{name: "silent", want: stays},
		{name: "silent-now", there: managed, want: goes, event: []string{"Normal", "ReflectionDisabled", "AllowList"}},
		{name: "silent-taken", there: foreign, want: asItWas},
		{name: "deleted-while-down", absent: true, there: managed, want: goes},
		{name: "other", absent: true, there: foreign, want: asItWas},
		{name: "new", notes: allowTrue, want: crosses},
		{name: "stale", notes: `liqo.io/allow-reflection: ""`, there: managed, want: crosses},
		{name: "taken", notes: allowTrue, there: foreign, want: asItWas, event: []string{"Warning", "FailedReflection", "is not managed by Refract"}},
		{name: "refused", notes: allowFalse, want: stays},
		{name: "refused-now", notes: allowFalse, there: managed, want: goes},
		{name: "not-skipped", notes: skipFalse, want: stays},
		{name: "odd", notes: `liqo.io/allow-reflection: "1"`, there: managed, want: asItWas, event: []string{"Warning", "InvalidObject", `"1"`}},
		{name: "odd-skip", notes: `liqo.io/skip-reflection: "yes", ` + allowTrue, want: stays, event: []string{"Warning", "InvalidObject", "skip-reflection", `"yes"`}},
		{name: "both", notes: skipTrue + ", " + allowTrue, want: stays, event: []string{"Warning", "InvalidObject", "both"}},
	},
}

// TestMatrix checks for all kinds the result of every combination of objects on both sides before the manager starts,
// and of later changes.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for policy, rows := range matrix {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
				o.Kinds, o.Policies = reflectiontest.Kinds(reflection.ServiceKind, reflection.IngressKind, reflection.ConfigMapKind, reflection.SecretKind,
					reflection.NetworkPolicyKind, reflection.DisruptionBudgetKind), map[string]reflection.Policy{}
				for _, kind := range o.Kinds {
					o.Policies[kind.Name] = policy
				}
			})
			for _, kind := range matrixKinds {
				for _, row := range rows {
					l.prepare(&kind, &row)
				}
			}
			l.Start()
			for _, kind := range matrixKinds {
				for _, row := range rows {
					l.arrived(&kind, &row)
				}
			}
			l.Settled() // At this point, all expected changes have been made, and no others may follow.
			for _, kind := range matrixKinds {
				for _, row := range rows {
					l.left(&kind, &row)
				}
				l.follows(&kind, policy)
			}
		})
	}
}

func (l *lab) prepare(kind *matrixKind, row *matrixRow) {
	l.Helper()
	if !row.absent {
		l.Local.Create(l.T, l.Namespace, kind.object(row.name, "app: "+row.name, row.notes, kind.content))
	}
	switch row.there {
	case managed:
		l.Remote.Create(l.T, l.RemoteNS, kind.object(row.name, l.Owned()+`, stale: "yes"`, "theirs: kept", kind.old))
	case foreign:
		l.Remote.Create(l.T, l.RemoteNS, kind.object(row.name, "whose: theirs", "", kind.old))
	}
}

// arrived waits until the objects of a row are in the expected state.
func (l *lab) arrived(kind *matrixKind, row *matrixRow) {
	l.Helper()
	switch row.want {
	case crosses:
		checks := []func(*unstructured.Unstructured) error{kind.fast, reflectiontest.Field("metadata.labels/app", row.name),
			reflectiontest.Field("metadata.labels/"+wire.OriginLabel, "rome"), reflectiontest.Field("metadata.labels/"+wire.DestinationLabel, l.ID)}
		if row.there == managed {
			checks = append(checks, reflectiontest.Field("metadata.annotations/theirs", "kept"))
		}
		l.Present(l.Remote, kind.kind, l.RemoteNS, row.name, checks...)
	case goes:
		l.Absent(l.Remote, kind.kind, l.RemoteNS, row.name)
	}
	if len(row.event) > 0 {
		l.Event(l.Namespace, kind.kind, row.name, append(row.event, l.ID)...)
	}
}

// left checks that the objects of a row that must not change are unchanged.
func (l *lab) left(kind *matrixKind, row *matrixRow) {
	l.Helper()
	there := l.Remote.Get(l.T, kind.kind, l.RemoteNS, row.name)
	switch row.want {
	case stays, goes:
		if there != nil {
			l.Errorf("%s %s is on the provider", kind.kind, row.name)
		}
	case asItWas:
		whose := map[string]error{managed: nil, foreign: nil}
		if there != nil {
			whose[managed], whose[foreign] = reflectiontest.Field("metadata.labels/stale", "yes")(there), reflectiontest.Field("metadata.labels/whose", "theirs")(there)
		}
		if err := errors.Join(whose[row.there]); there == nil || err != nil || there.GetLabels()["app"] != "" || kind.fast(there) == nil {
			l.Errorf("%s %s was touched on the provider: %v", kind.kind, row.name, err)
		}
	}
	if events := l.Events(l.Namespace, kind.kind, row.name); len(row.event) == 0 && row.want != goes && len(events) > 0 {
		l.Errorf("%s %s has the Events %q", kind.kind, row.name, events)
	}
}

// follows changes some of the objects and checks the effects of the changes on their copies.
func (l *lab) follows(kind *matrixKind, policy reflection.Policy) {
	l.Helper()
	name := kind.kind
	// The name becomes free, so the copy must be created.
	l.Remote.Delete(l.T, name, l.RemoteNS, "taken")
	l.Present(l.Remote, name, l.RemoteNS, "taken", kind.fast)
	// The annotation is set and then removed.
	key, away, back := skip, `"true"`, "null"
	if policy == reflection.AllowList {
		key, away, back = allow, "null", `"true"`
	}
	annotate := func(value string) string { return fmt.Sprintf("{metadata: {annotations: {%s: %s}}}", key, value) }
	l.Local.PatchYAML(l.T, name, l.Namespace, "new", annotate(away))
	l.Absent(l.Remote, name, l.RemoteNS, "new")
	l.Local.PatchYAML(l.T, name, l.Namespace, "new", annotate(back))
	l.Present(l.Remote, name, l.RemoteNS, "new", kind.fast)
	// Labels and annotations that are no longer desired must be removed. Entries that other clients have added must
	// stay.
	l.Local.PatchYAML(l.T, name, l.Namespace, "stale", `{metadata: {labels: {app: null, tier: front}}}`)
	l.Local.PatchYAML(l.T, name, l.Namespace, "stale", kind.slower)
	l.Present(l.Remote, name, l.RemoteNS, "stale", kind.slow, reflectiontest.Field("metadata.labels/tier", "front"), reflectiontest.Field("metadata.labels/app", ""), reflectiontest.Field("metadata.annotations/theirs", "kept"))
	// A copy that was deleted or changed on the provider must be restored.
	l.Remote.Delete(l.T, name, l.RemoteNS, "stale")
	l.Present(l.Remote, name, l.RemoteNS, "stale", kind.slow, reflectiontest.Field("metadata.labels/tier", "front"))
	l.Remote.PatchYAML(l.T, name, l.RemoteNS, "stale", `{metadata: {labels: {tier: hacked}}}`)
	l.Present(l.Remote, name, l.RemoteNS, "stale", reflectiontest.Field("metadata.labels/tier", "front"))
	// The copy must be deleted together with its object.
	l.Local.Delete(l.T, name, l.Namespace, "stale")
	l.Absent(l.Remote, name, l.RemoteNS, "stale")
	if own := l.Present(l.Local, name, l.Namespace, "new"); strings.Contains(fmt.Sprint(own.GetLabels()), wire.OriginLabel) {
		l.Errorf("%s new was changed here: %v", name, own.GetLabels())
	}
}

// TestSecretOfTokensInTheWay checks that a Secret with tokens, which belongs to another kind, does not count as the
// copy of a Secret with the same name.
func TestSecretOfTokensInTheWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web-token}, stringData: {mode: fast}}`)
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: web-token, labels: {%s, %s: robot}}, stringData: {token: secret}}`, l.Owned(), wire.ServiceAccountNameLabel))
	l.Start()
	l.Event(l.Namespace, "Secret", "web-token", "Warning", "FailedReflection", "for another object of this cluster", "rename")
	l.Settled()
	l.Present(l.Remote, "Secret", l.RemoteNS, "web-token", reflectiontest.Field("data.token", "c2VjcmV0"), reflectiontest.Field("data.mode", ""))
}
