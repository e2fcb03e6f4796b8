// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// matrixKind is how objects of a kind look in the matrix. What crosses says "fast" somewhere.
type matrixKind struct {
	kind, head   string // the latter up to metadata
	content, old string // of objects here, and of copies that are not up to date
	fast, slow   func(*unstructured.Unstructured) error
	slower       string // what makes fast slow
}

var matrixKinds = []matrixKind{
	{
		kind: ServiceKind, head: "apiVersion: v1, kind: Service",
		content: `spec: {selector: {mode: fast}, ports: [{name: http, port: 80, targetPort: 8080}]}`,
		old:     `spec: {ports: [{name: old, port: 9999}]}`,
		fast:    field("spec.selector.mode", "fast"), slow: onlyPort("https"),
		slower: `{spec: {selector: {mode: slow}, ports: [{name: https, port: 443}]}}`,
	},
	{
		kind: IngressKind, head: "apiVersion: networking.k8s.io/v1, kind: Ingress",
		content: `spec: {defaultBackend: {service: {name: fast, port: {number: 80}}}}`,
		old:     `spec: {defaultBackend: {service: {name: old, port: {name: http}}}}`,
		fast:    field("spec.defaultBackend.service.name", "fast"), slow: field("spec.defaultBackend.service.name", "slow"),
		slower: `{spec: {defaultBackend: {service: {name: slow}}}}`,
	},
	{
		kind: ConfigMapKind, head: "apiVersion: v1, kind: ConfigMap",
		content: `data: {mode: fast}`, old: `data: {mode: old}`,
		fast: field("data.mode", "fast"), slow: field("data.mode", "slow"), slower: `{data: {mode: slow}}`,
	},
	{
		kind: SecretKind, head: "apiVersion: v1, kind: Secret",
		content: `stringData: {mode: fast}`, old: `stringData: {mode: old}`,
		fast: field("data.mode", "ZmFzdA=="), slow: field("data.mode", "c2xvdw=="), slower: `{data: {mode: c2xvdw==}}`,
	},
}

// onlyPort checks the ports that were asked for: of a port that somebody else asked for nothing is said.
func onlyPort(want string) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		found := false
		ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports")
		for _, port := range ports {
			name := raw.Map(port)["name"]
			found = found || name == want
			if name == "http" {
				return errors.New("the port that is not wanted any more is there")
			}
		}
		if !found {
			return fmt.Errorf("port %s is missing from %v", want, ports)
		}
		return field("spec.selector.mode", "slow")(object)
	}
}

func (k *matrixKind) object(name, labels, annotations, content string) string {
	return fmt.Sprintf("{%s, metadata: {name: %s, labels: {%s}, annotations: {%s}}, %s}", k.head, name, labels, annotations, content)
}

// matrixRow is an object on neither, one or both sides before the manager comes, and what becomes of it.
type matrixRow struct {
	name   string
	absent bool   // here
	notes  string // annotations here
	there  string // what the provider has: nothing, a copy of ours, or somebody else's object
	want   string
	event  []string // words of the Event, where there is one
}

const (
	managed, foreign               = "managed", "foreign"
	crosses, stays, goes, asItWas  = "crosses", "stays", "goes", "as it was"
	skipTrue, skipFalse, skipOther = `liqo.io/skip-reflection: "true"`, `liqo.io/skip-reflection: "False"`, `liqo.io/skip-reflection: maybe`
	allowTrue, allowFalse          = `liqo.io/allow-reflection: "True"`, `liqo.io/allow-reflection: "false"`
)

const skip, allow = wire.SkipReflectionAnnotation, wire.AllowReflectionAnnotation

var matrix = map[Policy][]matrixRow{
	DenyList: {
		{name: "new", want: crosses},
		{name: "stale", there: managed, want: crosses},
		{name: "taken", there: foreign, want: asItWas, event: []string{"Warning", "FailedReflection", "not made by this virtual node", "rename"}},
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
	AllowList: {
		{name: "silent", want: stays},
		{name: "silent-now", there: managed, want: goes, event: []string{"Normal", "ReflectionDisabled", "AllowList"}},
		{name: "silent-taken", there: foreign, want: asItWas},
		{name: "deleted-while-down", absent: true, there: managed, want: goes},
		{name: "other", absent: true, there: foreign, want: asItWas},
		{name: "new", notes: allowTrue, want: crosses},
		{name: "stale", notes: `liqo.io/allow-reflection: ""`, there: managed, want: crosses},
		{name: "taken", notes: allowTrue, there: foreign, want: asItWas, event: []string{"Warning", "FailedReflection", "not made by this virtual node"}},
		{name: "refused", notes: allowFalse, want: stays},
		{name: "refused-now", notes: allowFalse, there: managed, want: goes},
		{name: "not-skipped", notes: skipFalse, want: stays},
		{name: "odd", notes: `liqo.io/allow-reflection: "1"`, there: managed, want: asItWas, event: []string{"Warning", "InvalidObject", `"1"`}},
		{name: "odd-skip", notes: `liqo.io/skip-reflection: "yes", ` + allowTrue, want: stays, event: []string{"Warning", "InvalidObject", "skip-reflection", `"yes"`}},
		{name: "both", notes: skipTrue + ", " + allowTrue, want: stays, event: []string{"Warning", "InvalidObject", "both"}},
	},
}

// What is on each side before the manager comes, what it makes of it, and how that changes later: the same for all kinds.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for policy, rows := range matrix {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, withDefaultPlugins(t), func(o *Options) {
				o.Kinds, o.Policies = kinds(ServiceKind, IngressKind, ConfigMapKind, SecretKind), map[string]Policy{}
				for _, kind := range o.Kinds {
					o.Policies[kind.Name] = policy
				}
			})
			for _, kind := range matrixKinds {
				for _, row := range rows {
					l.prepare(&kind, &row)
				}
			}
			l.start()
			for _, kind := range matrixKinds {
				for _, row := range rows {
					l.arrived(&kind, &row)
				}
			}
			l.settled() // whatever was to happen has
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
		l.local.create(l.T, l.namespace, kind.object(row.name, "app: "+row.name, row.notes, kind.content))
	}
	switch row.there {
	case managed:
		l.remote.create(l.T, l.remoteNS, kind.object(row.name, l.owned()+`, stale: "yes"`, "theirs: kept", kind.old))
	case foreign:
		l.remote.create(l.T, l.remoteNS, kind.object(row.name, "whose: theirs", "", kind.old))
	}
}

// arrived waits for what is to happen.
func (l *lab) arrived(kind *matrixKind, row *matrixRow) {
	l.Helper()
	switch row.want {
	case crosses:
		checks := []func(*unstructured.Unstructured) error{kind.fast, field("metadata.labels/app", row.name),
			field("metadata.labels/"+wire.OriginLabel, "rome"), field("metadata.labels/"+wire.DestinationLabel, l.id)}
		if row.there == managed {
			checks = append(checks, field("metadata.annotations/theirs", "kept"))
		}
		l.present(l.remote, kind.kind, l.remoteNS, row.name, checks...)
	case goes:
		l.absent(l.remote, kind.kind, l.remoteNS, row.name)
	}
	if len(row.event) > 0 {
		l.event(l.namespace, kind.kind, row.name, append(row.event, l.id)...)
	}
}

// left checks that nothing else has happened.
func (l *lab) left(kind *matrixKind, row *matrixRow) {
	l.Helper()
	there := l.remote.get(l.T, kind.kind, l.remoteNS, row.name)
	switch row.want {
	case stays, goes:
		if there != nil {
			l.Errorf("%s %s is on the provider", kind.kind, row.name)
		}
	case asItWas:
		whose := map[string]error{managed: nil, foreign: nil}
		if there != nil {
			whose[managed], whose[foreign] = field("metadata.labels/stale", "yes")(there), field("metadata.labels/whose", "theirs")(there)
		}
		if err := errors.Join(whose[row.there]); there == nil || err != nil || there.GetLabels()["app"] != "" || kind.fast(there) == nil {
			l.Errorf("%s %s was touched on the provider: %v", kind.kind, row.name, err)
		}
	}
	if events := l.events(l.namespace, kind.kind, row.name); len(row.event) == 0 && row.want != goes && len(events) > 0 {
		l.Errorf("%s %s has the Events %q", kind.kind, row.name, events)
	}
}

// follows is the rest of the story of some of the objects.
func (l *lab) follows(kind *matrixKind, policy Policy) {
	l.Helper()
	name := kind.kind
	// The name becomes free: the copy is made.
	l.remote.delete(l.T, name, l.remoteNS, "taken")
	l.present(l.remote, name, l.remoteNS, "taken", kind.fast)
	// An annotation changes its mind, twice.
	key, away, back := skip, `"true"`, "null"
	if policy == AllowList {
		key, away, back = allow, "null", `"true"`
	}
	annotate := func(value string) string { return fmt.Sprintf("{metadata: {annotations: {%s: %s}}}", key, value) }
	l.local.patchYAML(l.T, name, l.namespace, "new", annotate(away))
	l.absent(l.remote, name, l.remoteNS, "new")
	l.local.patchYAML(l.T, name, l.namespace, "new", annotate(back))
	l.present(l.remote, name, l.remoteNS, "new", kind.fast)
	// What is not wanted any more vanishes; what others added stays.
	l.local.patchYAML(l.T, name, l.namespace, "stale", `{metadata: {labels: {app: null, tier: front}}}`)
	l.local.patchYAML(l.T, name, l.namespace, "stale", kind.slower)
	l.present(l.remote, name, l.remoteNS, "stale", kind.slow, field("metadata.labels/tier", "front"), field("metadata.labels/app", ""), field("metadata.annotations/theirs", "kept"))
	// The copy is deleted, or changed, on the provider: it comes back.
	l.remote.delete(l.T, name, l.remoteNS, "stale")
	l.present(l.remote, name, l.remoteNS, "stale", kind.slow, field("metadata.labels/tier", "front"))
	l.remote.patchYAML(l.T, name, l.remoteNS, "stale", `{metadata: {labels: {tier: hacked}}}`)
	l.present(l.remote, name, l.remoteNS, "stale", field("metadata.labels/tier", "front"))
	// The object is deleted: so is the copy.
	l.local.delete(l.T, name, l.namespace, "stale")
	l.absent(l.remote, name, l.remoteNS, "stale")
	if own := l.present(l.local, name, l.namespace, "new"); strings.Contains(fmt.Sprint(own.GetLabels()), wire.OriginLabel) {
		l.Errorf("%s new was changed here: %v", name, own.GetLabels())
	}
}

// A Secret of tokens that another part of the virtual kubelet made is no copy of a Secret of the same name.
func TestSecretOfTokensInTheWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Secret, metadata: {name: web-token}, stringData: {mode: fast}}`)
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: web-token, labels: {%s, %s: robot}}, stringData: {token: secret}}`, l.owned(), wire.ServiceAccountNameLabel))
	l.start()
	l.event(l.namespace, "Secret", "web-token", "Warning", "FailedReflection", "not made by this virtual node")
	l.settled()
	l.present(l.remote, "Secret", l.remoteNS, "web-token", field("data.token", "c2VjcmV0"), field("data.mode", ""))
}
