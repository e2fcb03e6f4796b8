// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) (fields map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &fields))
	return fields
}

const sent = `{apiVersion: v1, kind: Thing, metadata: {name: a, uid: u, labels: {team: home, liqo.io/managed: "true"}, annotations: {gone: x}},
spec: {size: small, ports: [{name: http, port: 80}], selector: {app: web}, empty: {}}}`

const stored = `{apiVersion: v1, kind: Thing, metadata: {name: a, uid: v, labels: {team: cloud, liqo.io/managed: "false", added: "1"}},
spec: {size: small, ports: [{name: http, port: 81, nodePort: 30000}], selector: {app: web, zone: b}}, status: {ready: true}}`

func TestDifferences(t *testing.T) {
	var found []string
	for _, field := range Differences(object(t, sent), object(t, stored)) {
		found = append(found, fmt.Sprintf("%s %t", field, field.Dropped))
	}
	if diff := cmp.Diff([]string{"metadata.annotations.gone true", "metadata.labels.team false", "spec.ports false"}, found); diff != "" {
		t.Error(diff)
	}
}

// TestRecordsAreApplied checks that a decision of admission is applied as long as the same values are requested and the
// results are still stored.
func TestRecordsAreApplied(t *testing.T) {
	var none *Record
	record := none.With(Differences(object(t, sent), object(t, stored)), object(t, sent), object(t, stored))
	record = Read(map[string]any{Annotation: record.Text()})
	require.NotNil(t, record)
	for name, c := range map[string]struct{ sent, stored, want string }{
		"nothing has changed": {sent, stored, `{apiVersion: v1, kind: Thing, metadata: {name: a, uid: u, labels: {team: cloud, liqo.io/managed: "true"}, annotations: {}},
			spec: {size: small, ports: [{name: http, port: 81}], selector: {app: web}, empty: {}}}`},
		"other fields are requested": {strings.Replace(sent, "size: small", "size: big", 1), stored, `{apiVersion: v1, kind: Thing, metadata: {name: a, uid: u, labels: {team: cloud, liqo.io/managed: "true"}, annotations: {}},
			spec: {size: big, ports: [{name: http, port: 81}], selector: {app: web}, empty: {}}}`},
		"the same fields are requested": {strings.NewReplacer("team: home", "team: new", "port: 80", "port: 82", "gone: x", "gone: y").Replace(sent), stored,
			strings.NewReplacer("team: home", "team: new", "port: 80", "port: 82", "gone: x", "gone: y").Replace(sent)},
		"others have changed the fields": {sent, strings.NewReplacer("team: cloud", "team: theirs", "port: 81", "port: 83", "uid: v", "uid: v, annotations: {gone: z}").Replace(stored), sent},
	} {
		t.Run(name, func(t *testing.T) {
			got := object(t, c.sent)
			kept := record.Apply(got, object(t, c.stored))
			if diff := cmp.Diff(object(t, c.want), got); diff != "" {
				t.Error(diff)
			}
			if same := c.want == c.sent; kept.IsEmpty() != same {
				t.Errorf("the record that is kept is empty: %t, want %t", kept.IsEmpty(), same)
			}
		})
	}
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"", "v1:", "v1:AAAA", "v2:AAAA", "v1:!", "AAAA"} {
		if record := Read(map[string]any{Annotation: text}); record != nil {
			t.Errorf("%q is read as %v", text, record)
		}
	}
	var none *Record
	if !none.IsEmpty() || none.Text() != "" {
		t.Error("there is something in no record")
	}
}

func TestDecided(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	asked := object(t, `{spec: {size: small, ports: [{name: http, port: 80}], selector: {app: web}, other: a}}`)
	kept := object(t, `{spec: {size: big, ports: [{name: web, port: 80}], selector: {app: other}, other: b}}`)
	ours := entry("ours", apply, "", `{"f:spec":{"f:size":{},"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}}},"f:selector":{}}}`)
	for name, c := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    []string
	}{
		"ours alone":              {[]metav1.ManagedFieldsEntry{ours}, []string{"spec.size", "spec.ports", "spec.selector.app"}},
		"others own a field":      {[]metav1.ManagedFieldsEntry{ours, entry("gitops", update, "", `{"f:spec":{"f:size":{}}}`)}, []string{"spec.ports", "spec.selector.app"}},
		"others own a part":       {[]metav1.ManagedFieldsEntry{ours, entry("gitops", update, "", `{"f:spec":{"f:ports":{"k:{\"port\":80}":{"f:port":{}}}}}`)}, []string{"spec.size", "spec.selector.app"}},
		"a status":                {[]metav1.ManagedFieldsEntry{ours, entry("controller", update, "status", `{"f:spec":{"f:size":{}}}`)}, []string{"spec.size", "spec.ports", "spec.selector.app"}},
		"not by apply":            {[]metav1.ManagedFieldsEntry{entry("ours", update, "", `{"f:spec":{"f:size":{}}}`)}, nil},
		"owners are not known":    {nil, nil},
		"owners that are no JSON": {[]metav1.ManagedFieldsEntry{ours, entry("gitops", update, "", `{`)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			fields := []Field{{Path: []string{"spec", "size"}}, {Path: []string{"spec", "ports"}}, {Path: []string{"spec", "selector", "app"}}, {Path: []string{"spec", "other"}}}
			decided, open := Decided(fields, asked, kept, c.entries, "ours")
			if len(decided)+len(open) != len(fields) {
				t.Errorf("%v are decided, and %v open, of %v", decided, open, fields)
			}
			for _, field := range decided {
				got = append(got, field.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestListsWithItemsOfOthers checks that list items that were not requested do not count as decisions, because other
// clients or admission have added them.
func TestListsWithItemsOfOthers(t *testing.T) {
	for name, c := range map[string]struct{ stored, owned, others, decided, open string }{
		"changed":                     {`[{port: 80, name: web, protocol: TCP}]`, keyed, "", "ports", ""},
		"with one of another manager": {`[{port: 80, name: http, protocol: TCP}, {port: 1, name: mesh, nodePort: 31000}]`, keyed, `{"k:{\"port\":1,\"protocol\":\"TCP\"}":{"f:name":{}}}`, "", ""},
		"with one of nobody":          {`[{port: 1, name: mesh}, {port: 80, name: http, protocol: TCP}]`, keyed, "", "", ""},
		"changed, with one of nobody": {`[{port: 80, name: web, protocol: TCP}, {port: 1, name: mesh}]`, keyed, "", "", "ports"},
		"replaced by one of nobody":   {`[{port: 1, name: mesh}]`, keyed, "", "", "ports"},
		"removed":                     {`[]`, keyed, "", "ports", ""},
		"atomic":                      {`[{port: 80, name: http}, {port: 1, name: mesh}]`, `{}`, "", "ports", ""},
		"with an item within an item": {`[{port: 80, name: http, protocol: TCP, tags: [a, b]}]`, `{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:name":{},"f:tags":{"v:\"a\"":{}}}}`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			entries := []metav1.ManagedFieldsEntry{{Manager: "ours", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:ports":` + c.owned + `}`)}}
			if c.others != "" {
				entries = append(entries, metav1.ManagedFieldsEntry{Manager: "mesh", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:ports":` + c.others + `}`)})
			}
			sent := object(t, `{ports: [{port: 80, name: http}]}`)
			if strings.Contains(c.owned, "tags") {
				sent = object(t, `{ports: [{port: 80, name: http, tags: [a]}]}`)
			}
			decided, open := Decided([]Field{{Path: []string{"ports"}}}, sent, object(t, "ports: "+c.stored), entries, "ours")
			if diff := cmp.Diff([2]string{c.decided, c.open}, [2]string{names(decided), names(open)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// keyed is a managedFields entry for one item in a list.
const keyed = `{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}`

func names(fields []Field) string {
	var texts []string
	for _, field := range fields {
		texts = append(texts, field.String())
	}
	return strings.Join(texts, " ")
}

// TestQuantities checks that another notation of a quantity does not count as a decision. Such a difference must be
// recorded only together with a decision about another field.
func TestQuantities(t *testing.T) {
	for _, c := range []struct {
		sent, stored string
		similar      bool
	}{
		{"1024Mi", "1Gi", true}, {"0.5", "500m", true}, {"1000e3", "1M", true}, {"1Gi", "2Gi", false}, {"a", "b", false}, {"v1", "1", false}, {"1e999999999", "1e999999998", false},
	} {
		for _, form := range []string{`{spec: {storage: "%s"}}`, `{spec: {claims: [{name: a, storage: "%s"}]}}`} {
			sent, stored := object(t, fmt.Sprintf(form, c.sent)), object(t, fmt.Sprintf(form, c.stored))
			fields := Differences(sent, stored)
			if len(fields) != 1 || fields[0].Similar != c.similar {
				t.Fatalf("the differences of %s and %s are %v, want similar: %t", c.sent, c.stored, fields, c.similar)
			}
			var none *Record
			if record := none.With(fields, sent, stored); record.IsEmpty() != c.similar {
				t.Errorf("%s is stored as %s: the record is empty: %t", c.sent, c.stored, record.IsEmpty())
			}
		}
	}
	sent, stored := object(t, `{spec: {storage: 1024Mi, size: small}}`), object(t, `{spec: {storage: 1Gi, size: big}}`)
	var none *Record
	if none.With(Differences(sent, stored), sent, stored).Apply(sent, stored); cmp.Diff(stored, sent) != "" {
		t.Errorf("%v is sent, want %v", sent, stored)
	}
}

const (
	webItem   = `{name: web, image: web, resources: {requests: {cpu: 1}, limits: {cpu: "2"}}}`
	sentWhole = `{apiVersion: v1, kind: Thing, metadata: {name: a}, spec: {template: {empty: [], containers: [` + webItem + `, {name: log}]}}}`
)

// TestDifferencesOfWhole checks which differences between the sent and the stored version count in a copy that only the
// virtual kubelet writes. Additional fields count if they are in the content. Outside of the content they do not,
// because they are defaults of the API server. The resources of a container count as one field, and so do lists whose
// items have no names, unless only a part of the content is compared.
func TestDifferencesOfWhole(t *testing.T) {
	part := Content{Path: []string{"spec", "template"}, InPart: true}
	whole := Content{Path: part.Path}
	keyA := itemKey(map[string]any{"key": "a"})
	for name, c := range map[string]struct {
		content      Content
		before, then string
		want         []string
	}{
		"nothing":                {whole, "spec:", "spec:", nil},
		"an added field":         {whole, "empty: []", "deadline: 900", []string{"spec.template.deadline"}},
		"an added empty field":   {whole, "empty: []", "empty: [], none: {}, nil: null", nil},
		"in the place of none":   {whole, "empty: []", "empty: [{key: a}]", []string{"spec.template.empty" + keyA}},
		"of texts":               {whole, "empty: []", "empty: [a]", []string{"spec.template.empty"}},
		"an added list":          {part, "empty: []", "tolerations: [{key: a}]", []string{"spec.template.tolerations" + keyA}},
		"beside the content":     {whole, "spec: {", "default: 1, spec: {size: small, ", nil},
		"in metadata":            {whole, "name: a}", "name: a, uid: b, generation: 1}", nil},
		"without a path":         {Content{}, "spec: {", "default: 1, spec: {size: small, ", []string{"spec.size"}},
		"in an item":             {whole, "name: log", "name: log, image: log", []string{"spec.template.containers[log].image"}},
		"a limit":                {whole, `cpu: "2"`, "cpu: 1", []string{"spec.template.containers[web].resources"}},
		"an added limit":         {whole, `"2"`, `"2", memory: 1Gi`, []string{"spec.template.containers[web].resources"}},
		"added resources":        {whole, "name: log", "name: log, resources: {limits: {cpu: 1}}", []string{"spec.template.containers[log].resources"}},
		"quantities":             {whole, `"2"`, "2000m", []string{"spec.template.containers[web].resources similar"}},
		"an added item":          {whole, "{name: log}", "{name: log}, {name: mesh}", []string{"spec.template.containers"}},
		"another order":          {whole, webItem + ", {name: log}", "{name: log}, " + webItem, []string{"spec.template.containers"}},
		"an added item, in part": {part, "[{name: web, image: web,", "[{name: mesh}, {name: web, image: mirror/web,", []string{"spec.template.containers[web].image"}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, stored := object(t, sentWhole), object(t, strings.Replace(sentWhole, c.before, c.then, 1))
			var found []string
			fields := DifferencesOfWhole(sent, stored, c.content)
			for _, field := range fields {
				text := field.String()
				if field.Similar {
					text += " similar"
				}
				found = append(found, text)
			}
			if diff := cmp.Diff(c.want, found); diff != "" {
				t.Error(diff)
			}
			var none *Record
			record := none.With(fields, sent, stored)
			if record.IsEmpty() != AreSimilar(fields) || !record.Equal(record.Apply(sent, stored)) {
				t.Errorf("%v is recorded, and %v is sent", fields, sent)
			}
			if left := DifferencesOfWhole(sent, stored, c.content); !AreSimilar(left) {
				t.Errorf("after the decisions are applied these fields differ: %v", left)
			}
		})
	}
}

// TestAdditionsAreApplied checks that a field that admission has added is included in later writes until another value
// is requested or stored. A decision about resources must apply to all resources of the container.
func TestAdditionsAreApplied(t *testing.T) {
	content := Content{Path: []string{"spec", "template"}, InPart: true}
	stored := strings.NewReplacer("empty: []", "deadline: 900", `cpu: "2"`, "cpu: 1", "name: log", "name: log, resources: {limits: {cpu: 1}}").Replace(sentWhole)
	var none *Record
	record := ReadWhole(map[string]any{Annotation: none.With(DifferencesOfWhole(object(t, sentWhole), object(t, stored), content), object(t, sentWhole), object(t, stored)).Text()})
	for name, c := range map[string]struct{ before, then, theirs, want string }{
		"as requested":      {"name: a", "name: a", "", "900 map[limits:map[cpu:1] requests:map[cpu:1]] map[limits:map[cpu:1]]"},
		"another value":     {"empty: []", "deadline: 800", "", "800 map[limits:map[cpu:1] requests:map[cpu:1]] map[limits:map[cpu:1]]"},
		"another request":   {"requests: {cpu: 1}", "requests: {cpu: 1.5}", "", "900 map[limits:map[cpu:2] requests:map[cpu:1.5]] map[limits:map[cpu:1]]"},
		"resources":         {"name: log", "name: log, resources: {requests: {cpu: 3}}", "", "900 map[limits:map[cpu:1] requests:map[cpu:1]] map[requests:map[cpu:3]]"},
		"changed by others": {"name: a", "name: a", "deadline: 901", "<nil> map[limits:map[cpu:1] requests:map[cpu:1]] map[limits:map[cpu:1]]"},
	} {
		t.Run(name, func(t *testing.T) {
			sent, have := object(t, strings.Replace(sentWhole, c.before, c.then, 1)), stored
			if c.theirs != "" {
				have = strings.Replace(stored, "deadline: 900", c.theirs, 1)
			}
			record.Apply(sent, object(t, have))
			field := func(path ...string) any {
				value, _ := at(sent, append(slices.Clone(content.Path), path...))
				return value
			}
			if got := fmt.Sprint(field("deadline"), field("containers", "[web]", "resources"), field("containers", "[log]", "resources")); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestItemsStandBesideRequestedOnes checks that items without names that admission has added to a list are included in
// later writes as long as they are stored, whatever list is requested.
func TestItemsStandBesideRequestedOnes(t *testing.T) {
	const a, b, c, spot = `{key: a}`, `{key: b}`, `{key: c}`, `{key: spot}`
	list := func(items ...string) string { return "[" + strings.Join(items, ", ") + "]" }
	for name, test := range map[string]struct{ sent, stored, requested, present, want string }{
		"one more":                {list(a), list(a, spot), list(a, b), list(a, spot), list(a, b, spot)},
		"before the others":       {list(a), list(spot, a), list(b), list(spot, a), list(b, spot)},
		"none any more":           {list(a), list(a, spot), "", list(a, spot), list(spot)},
		"none before":             {"", list(spot, c), list(a), list(spot, c), list(a, spot, c)},
		"requested as well":       {list(a), list(a, spot), list(spot), list(a, spot), list(spot)},
		"removed by others":       {list(a), list(a, spot), list(b), list(a), list(b)},
		"changed by others":       {list(a), list(a, spot), list(b), list(a, `{key: spot, effect: e}`), list(b)},
		"one replaced, one added": {list(a), list(c, spot), list(b), list(c, spot), list(b)},
		"texts":                   {list("a"), list("a", "b"), list("c"), list("a", "b"), list("c")},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(list string) map[string]any {
				if list != "" {
					list = "items: " + list
				}
				return object(t, "{spec: {template: {other: a, "+list+"}}}")
			}
			var none *Record
			content := Content{Path: []string{"spec", "template"}, InPart: true}
			record := none.With(DifferencesOfWhole(of(test.sent), of(test.stored), content), of(test.sent), of(test.stored))
			record = ReadWhole(map[string]any{Annotation: record.Text()})
			requested := of(test.requested)
			kept := record.Apply(requested, of(test.present))
			if diff := cmp.Diff(of(test.want), requested); diff != "" {
				t.Error(diff)
			}
			isAdded := strings.Contains(test.want, "spot") && !strings.Contains(test.requested, "spot")
			if kept.IsEmpty() == isAdded {
				t.Errorf("the record that is kept is empty: %t", kept.IsEmpty())
			}
		})
	}
}
