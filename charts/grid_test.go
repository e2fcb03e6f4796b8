// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/test/support/testenv"
)

// setting is a value of the chart that is tested.
type setting struct {
	path  string
	value any
}

// property is the schema of one value.
type property struct {
	Type       any                  `json:"type"`
	Enum       []any                `json:"enum"`
	Minimum    *int                 `json:"minimum"`
	Ref        string               `json:"$ref"`
	Properties map[string]*property `json:"properties"`
}

// settings returns test values for each property of the schema, such as extreme numbers and strings that YAML would
// parse as another type.
func settings(t *testing.T) (all []setting) {
	t.Helper()
	schema := struct {
		property    `json:",inline"`
		Definitions map[string]*property `json:"definitions"`
		Defs        map[string]*property `json:"$defs"`
	}{}
	require.NoError(t, json.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.schema.json"))), &schema))
	var walk func(path string, p *property)
	walk = func(path string, p *property) {
		if p.Ref != "" {
			name := p.Ref[strings.LastIndex(p.Ref, "/")+1:]
			if p = schema.Definitions[name]; p == nil {
				p = schema.Defs[name]
			}
			require.NotNil(t, p, path)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
			walk(strings.TrimPrefix(path+"."+name, "."), p.Properties[name])
		}
		if len(p.Properties) > 0 {
			return
		}
		values := p.Enum
		switch p.Type {
		case "boolean":
			values = []any{true, false}
		case "integer":
			values = []any{0, 1, 2, 65535}
		case "string":
			values = append(values, "", "2024", "true", "0x1f", "*", "a: b", "-", "10.0.0.1", "15s")
		case "array":
			values = []any{[]any{}, []any{"2024"}, []any{"*", "true", "example.com/*"}, []any{"10.0.0.0/8", "fd00::/8"}}
		case "object":
			values = []any{map[string]any{}, map[string]any{"2024": "true"}, map[string]any{"example.com/a": "1e3"}, map[string]any{"cpu": "10", "memory": "1Gi"}, map[string]any{"requests": map[string]any{"cpu": 1}},
				map[string]any{"app.kubernetes.io/name": "mine", "app.kubernetes.io/component": "mine", "liqo.io/managed": "false", "liqo.io/remote-cluster-id": "other", "helm.sh/resource-policy": "delete"}}
		default:
			values = append(values, "2024", "true", 0, 3, "5Gi", nil)
		}
		for _, value := range values {
			all = append(all, setting{path, value})
		}
	}
	walk("", &schema.property)
	return all
}

// changed returns the values of a case with the given changes.
func changed(t *testing.T, base string, changes ...setting) map[string]any {
	t.Helper()
	vals := values(t, base)
	for _, change := range changes {
		into, keys := vals, strings.Split(change.path, ".")
		for _, key := range keys[:len(keys)-1] {
			next, ok := into[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				into[key] = next
			}
			into = next
		}
		into[keys[len(keys)-1]] = change.value
	}
	return vals
}

// decoded is the result of parsing one document. The object is nil if the scheme does not contain its kind.
type decoded struct {
	object   client.Object
	document *unstructured.Unstructured
	err      error
}

// parser parses each document once, because one changed value affects few of the rendered documents, and most
// renderings have all other documents in common.
type parser map[string]decoded

// parseAll decodes all objects strictly and returns the objects whose kinds are in the scheme. For all other objects it
// only checks the syntax.
func (p parser) parseAll(t *testing.T, rendered map[string]string) (found []decoded, err error) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, document := range documents(t, rendered[name]) {
			one, known := p[string(document)]
			if !known {
				one = parseDocument(t, document)
				p[string(document)] = one
			}
			if one.err != nil {
				return nil, fmt.Errorf("%s: %w", name, one.err)
			}
			if one.object != nil {
				found = append(found, one)
			}
		}
	}
	return found, nil
}

func parseDocument(t *testing.T, text []byte) decoded {
	t.Helper()
	object, _, err := strictDecoder(t).Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return decoded{err: yaml.UnmarshalStrict(text, &map[string]any{})}
	}
	if object == nil || err != nil {
		return decoded{err: err}
	}
	document := &unstructured.Unstructured{}
	return decoded{object: object.(client.Object), document: document, err: yaml.UnmarshalStrict(text, &document.Object)}
}

// TestParserIsStrict checks that the parser of the grid rejects duplicate keys, unknown fields and values of other types.
func TestParserIsStrict(t *testing.T) {
	const configMap, monitor = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\n"
	for document, want := range map[string]string{
		configMap + "data: {a: b}\n": "", monitor + "spec: {a: b}\n": "",
		configMap + "data: {a: b, a: c}\n": "already set in map", configMap + "metadata: {name: b}\n": "already set in map",
		monitor + "spec: {a: b, a: c}\n": "already set in map", monitor + "metadata: {name: b}\n": "already set in map",
		configMap + "spec: {}\n": "unknown field", configMap + "data: {a: 1}\n": "cannot unmarshal number",
	} {
		_, err := parser{}.parseAll(t, map[string]string{"a.yaml": document})
		if want == "" {
			assert.NoError(t, err, document)
			continue
		}
		assert.ErrorContains(t, err, want, document)
	}
}

// aValue matches the name of a chart value in an error message of the chart or of its schema.
var aValue = regexp.MustCompile(`at '/[a-zA-Z]+|[a-z][a-zA-Z]+\.[a-z][a-zA-Z]+`)

// TestGridOfValues checks that each test value that the chart accepts results in valid objects, that an API server
// accepts the objects of random combinations of these values, and that errors about rejected values name a value.
func TestGridOfValues(t *testing.T) {
	testenv.NeedControlPlane(t)
	const draws, share = 40, 0.3
	all, parse := settings(t), parser{}
	var taken []setting
	for i, one := range all {
		// Each value is tested in one of the cases here. The random combinations below also test it in other cases.
		base := cases[i%len(cases)]
		rendered, err := render(t, changed(t, base, one))
		if err != nil {
			assert.Regexp(t, aValue, err.Error(), "%s: %v", one.path, one.value)
			continue
		}
		if _, err := parse.parseAll(t, rendered); assert.NoError(t, err, "%s, %s: %v", base, one.path, one.value) {
			taken = append(taken, one)
		}
	}
	t.Logf("the chart takes %d of %d values", len(taken), len(all))
	require.Greater(t, len(taken), len(all)/4)
	if t.Failed() {
		return
	}

	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{filepath.Join(chartDir, "crds")}, NoScheduler: true,
		// Objects are not stored, so pods refer to service accounts and priority classes that do not exist.
		ExtraAPIServerArgs: []string{"--disable-admission-plugins=ServiceAccount,Priority"}})[0]
	c, err := client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	for _, name := range []string{releaseNamespace, "liqo-tenant-milan", "liqo-tenant-rome", "turin"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	random := rand.New(rand.NewPCG(1, 1))
	accepted := 0
	for draw := range draws {
		base := cases[draw%len(cases)]
		var drawn []setting
		for _, one := range taken {
			// Resources are not combined, because the valid requests of a container depend on its limits and on the
			// cluster.
			if random.Float64() < share && !strings.Contains(one.path, ".resources.") {
				drawn = append(drawn, one)
			}
		}
		rendered, err := render(t, changed(t, base, drawn...))
		if err != nil {
			assert.Regexp(t, aValue, err.Error())
			continue
		}
		objects, err := parse.parseAll(t, rendered)
		require.NoError(t, err, "%s: %v", base, drawn)
		for _, object := range objects {
			// The objects are not stored, so each draw is a first installation. Unlike a creation, an application also
			// rejects lists with duplicate keys.
			err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.document.DeepCopy()), client.DryRunAll, client.FieldOwner("helm"), client.ForceOwnership)
			assert.NoError(t, err, "%s: %v", base, drawn)
			if deployment, ok := object.object.(*appsv1.Deployment); ok {
				template := deployment.Spec.Template.DeepCopy()
				template.Name, template.Namespace = deployment.Name, deployment.Namespace
				create(t, c, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
			}
		}
		accepted++
	}
	t.Logf("an API server took %d of %d draws", accepted, draws)
	assert.Positive(t, accepted)
}
