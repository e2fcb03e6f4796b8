// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/virtualnode"
	"github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection"
)

// TestDefaultKindsAreConfigurable checks that the list of default kinds is the same in all places that cannot import
// it: the chart, the API, the Deployment of a virtual kubelet, and the default plugins.
func TestDefaultKindsAreConfigurable(t *testing.T) {
	values, schema, args := reflectionValues(t), reflectionSchema(t), reflectionArgs(t)
	definition, template := text(t, "../api/plugins/v1alpha1/reflectedresource.go"), text(t, "../api/offloading/v1beta1/vkoptionstemplate.go")
	var names []string
	for _, kind := range reflection.DefaultKinds() {
		name := kind.Flag()
		names = append(names, name)
		want := map[string]any{"workers": float64(kind.Workers)}
		typed := kind.Policy != reflection.Always && kind.PolicyOf == ""
		if typed {
			want["type"] = string(kind.Policy)
		}
		for _, key := range []string{"workers", "type"} {
			assert.Equal(t, want[key], values[name][key], "charts/refract/values.yaml, offloading.reflection.%s.%s", name, key)
		}
		assert.True(t, slices.ContainsFunc(schema, func(known *regexp.Regexp) bool { return known.MatchString(name) }),
			"charts/refract/values.schema.json, offloading.reflection lacks %s", name)
		assert.Contains(t, args, fmt.Sprintf("--%s-reflection-workers=1", name), "reflectors in controllers/virtualnode/forge.go lacks %s", name)
		assert.Equal(t, typed, slices.Contains(args, fmt.Sprintf("--%s-reflection-type=AllowList", name)), "reflectors in controllers/virtualnode/forge.go: whether %s is typed", name)
		assert.Contains(t, definition, "'"+kind.Source.Resource+"'", "api/plugins/v1alpha1/reflectedresource.go, which resources a ReflectedResource cannot name")
		assert.Regexp(t, `// .*\b`+name+`\b`, template, "api/offloading/v1beta1/vkoptionstemplate.go, the comment of ReflectorsConfig")
		if _, err := plugins.FS.ReadFile(name + "/" + name + ".wasm"); err == nil {
			plugin, _ := plugins.Default(kind.Name)
			assert.Equal(t, name, plugin, "the default plugin of %s; see group in plugins/plugins.go", kind.Name)
		}
	}
	for name := range values {
		assert.Contains(t, names, name, "charts/refract/values.yaml, offloading.reflection")
	}
	assert.Len(t, slices.DeleteFunc(args, func(arg string) bool { return !strings.Contains(arg, "-reflection-workers=") }), len(names), "controllers/virtualnode/forge.go, reflectors")
}

func text(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}

// reflectionValues returns the chart's values for reflection, by kind.
func reflectionValues(t *testing.T) map[string]map[string]any {
	t.Helper()
	var values struct {
		Offloading struct {
			Reflection map[string]map[string]any `json:"reflection"`
		} `json:"offloading"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "../charts/refract/values.yaml")), &values))
	delete(values.Offloading.Reflection, "skip")
	return values.Offloading.Reflection
}

// reflectionSchema returns regular expressions that match the kinds which the chart's schema permits.
func reflectionSchema(t *testing.T) (known []*regexp.Regexp) {
	t.Helper()
	type object struct {
		Properties        map[string]json.RawMessage `json:"properties"`
		PatternProperties map[string]json.RawMessage `json:"patternProperties"`
	}
	below := func(of object, property string) (found object) {
		require.NoError(t, json.Unmarshal(of.Properties[property], &found), property)
		return found
	}
	var schema object
	require.NoError(t, json.Unmarshal([]byte(text(t, "../charts/refract/values.schema.json")), &schema))
	reflected := below(below(schema, "offloading"), "reflection")
	for property := range reflected.Properties {
		known = append(known, regexp.MustCompile("^"+regexp.QuoteMeta(property)+"$"))
	}
	for pattern := range reflected.PatternProperties {
		known = append(known, regexp.MustCompile(pattern))
	}
	return known
}

// reflectionArgs returns the arguments of a virtual kubelet whose template configures all kinds.
func reflectionArgs(t *testing.T) []string {
	t.Helper()
	template := &offloading.VkOptionsTemplate{Spec: offloading.VkOptionsTemplateSpec{ContainerImage: "vk", ReflectorsConfig: map[string]offloading.ReflectorConfig{}}}
	for _, kind := range reflection.DefaultKinds() {
		template.Spec.ReflectorsConfig[kind.Flag()] = offloading.ReflectorConfig{NumWorkers: 1, Type: offloading.AllowList}
	}
	made, err := virtualnode.Forge(&offloading.VirtualNode{Spec: offloading.VirtualNodeSpec{ClusterID: "milan"}}, template, virtualnode.Installation{ClusterID: "rome", Namespace: "liqo"})
	require.NoError(t, err)
	return made.Spec.Template.Spec.Containers[0].Args
}
