// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"

	"github.com/refract-project/refract/cmd/refractctl/cli/plugins"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/test/support/wattest"
)

const podAndService = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: web}]}}\n---\n" +
	"{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.7}}\n"

// noted builds a plugin for all kinds that copies an entry of its context to the annotation "noted".
func noted(t *testing.T, dir, name, entry, options string) string {
	t.Helper()
	const path = "metadata.annotations.noted"
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"noted","version":"1","kinds":["*"],"hooks":["outgoing","incoming"],"writes":["metadata.annotations"]}`,
		`(import "refract" "get" (func $get (param i32 i32 i32) (result i32)))
		(import "refract" "copy" (func $copy (param i32 i32 i32 i32)))`,
		fmt.Sprintf(`(data (i32.const 0) "%s%s")
		(func $hook (result i32) (call $copy (i32.const 1) (i32.const 0) (i32.const %d) (call $get (i32.const 2) (i32.const %d) (i32.const %d))) (i32.const 0))
		(export "outgoing" (func $hook)) (export "incoming" (func $hook))`, path, entry, len(path), len(path), len(entry))))
	require.NoError(t, err)
	module := filepath.Join(dir, name+".wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	if options != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(options), 0o600))
	}
	return module
}

func writeObjects(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestPluginRunHeedsTheOptions checks that restrictions in the options and the manifest apply in a trial as they do in
// a virtual kubelet.
func TestPluginRunHeedsTheOptions(t *testing.T) {
	objects := writeObjects(t, podAndService)
	for name, tc := range map[string]struct{ options, failure, note string }{
		"kinds that match some":    {"kinds: [Service]", "", `object 1 of 2 (pod/web): plugin mine is not for the kind Pod: its options in mine.yaml restrict it to ["Service"]`},
		"kinds that match none":    {"kinds: [ConfigMap]", `its options in mine.yaml restrict it to ["ConfigMap"]`, ""},
		"no kinds":                 {"kinds: []", `its options in mine.yaml restrict it to []`, ""},
		"an unknown default":       {"replaces: servise", `replaces: there is no default plugin "servise" (there are configmap, `, ""},
		"a default":                {"replaces: service", "", ""},
		"writes that are narrower": {`writes: ["spec"]`, "metadata.annotations", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, progress, err := refractctl(t, "plugin", "run", noted(t, t.TempDir(), "mine", "remoteNamespace", tc.options), "-f", objects)
			if tc.failure != "" {
				require.ErrorContains(t, err, tc.failure)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, progress, tc.note)
			want := 2
			if tc.note != "" {
				want = 1
			}
			assert.Equal(t, want, strings.Count(out, "noted: shop-home"), out)
		})
	}
	_, _, err := refractctl(t, "plugin", "run", "../../../plugins/secret/secret.wasm", "-f", objects)
	require.ErrorContains(t, err, `plugin secret is not for the kind`)
}

func TestPluginRunRunsTheChain(t *testing.T) {
	objects := writeObjects(t, podAndService)
	dir := t.TempDir()
	late, early := noted(t, dir, "a-late", "remoteNamespace", "priority: 10"), noted(t, dir, "b-early", "localNamespace", "kinds: [Service]")
	own := noted(t, dir, "own", "localClusterID", "replaces: service")
	for name, tc := range map[string]struct {
		modules, used []string
		noted         string
	}{
		"the default one first": {[]string{late}, []string{"pod", "a-late", "service", "a-late"}, "shop-home"},
		"by priority":           {[]string{late, early}, []string{"pod", "a-late", "service", "b-early", "a-late"}, "shop-home"},
		"without the replaced":  {[]string{own}, []string{"pod", "own", "own"}, "home"},
	} {
		t.Run(name, func(t *testing.T) {
			out, progress, err := refractctl(t, append([]string{"plugin", "run", "--chain", "-f", objects}, tc.modules...)...)
			require.NoError(t, err)
			var used []string
			for line := range strings.Lines(progress) {
				if plugin, _, ok := strings.Cut(line, " used "); ok {
					used = append(used, plugin)
				}
			}
			if diff := cmp.Diff(tc.used, used); diff != "" {
				t.Errorf("the chains (-want +got):\n%s", diff)
			}
			assert.Equal(t, 2, strings.Count(out, "noted: "+tc.noted+"\n"), out)
			assert.Equal(t, name == "without the replaced", strings.Contains(out, "10.96.0.7"), "the cluster IP, which the default plugin removes: %s", out)
		})
	}
	for args, want := range map[string]string{
		"--chain " + late + " ../../../plugins/service/service.wasm": "service is also the name of a default plugin",
		late + " " + early: "name one module, not 2",
		"--chain --config=testdata/context.yaml " + late + " " + early: "--config is for one module",
	} {
		_, _, err := refractctl(t, append([]string{"plugin", "run", "-f", objects}, strings.Fields(args)...)...)
		assert.ErrorContains(t, err, want, args)
	}
}

func TestContextOfATrial(t *testing.T) {
	object := func(namespace string) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": namespace}}
	}
	for name, tc := range map[string]struct {
		given         map[string]any
		namespace     string
		hook          host.Hook
		local, remote string
	}{
		"nothing given":               {nil, "shop", host.Outgoing, "shop", "shop-home"},
		"of a cluster":                {map[string]any{"localClusterID": "rome"}, "shop", host.Outgoing, "shop", "shop-rome"},
		"on the way back":             {map[string]any{"localClusterID": "rome"}, "shop-rome", host.Incoming, "shop", "shop-rome"},
		"no namespace":                {nil, "", host.Outgoing, "default", "default-home"},
		"the local one given":         {map[string]any{"localNamespace": "bank"}, "shop", host.Outgoing, "bank", "bank-home"},
		"the remote one given":        {map[string]any{"remoteNamespace": "bank-home"}, "shop", host.Outgoing, "bank", "bank-home"},
		"both given":                  {map[string]any{"localNamespace": "bank", "remoteNamespace": "vault"}, "shop", host.Outgoing, "bank", "vault"},
		"both given, on the way back": {map[string]any{"localNamespace": "bank", "remoteNamespace": "vault"}, "x", host.Incoming, "bank", "vault"},
	} {
		got := plugins.ContextFor(tc.given, object(tc.namespace), tc.hook)
		if got["localNamespace"] != tc.local || got["remoteNamespace"] != tc.remote || got["nodeName"] != "cloud" {
			t.Errorf("%s: the context is %v, want %s and %s", name, got, tc.local, tc.remote)
		}
	}
}

// TestPluginInspectShowsPermissionsAndSchema checks that the output shows the capabilities of a module, its schema, and
// the restrictions by its options. A user may have to decide from them whether to run the module.
func TestPluginInspectShowsPermissionsAndSchema(t *testing.T) {
	out, _, err := refractctl(t, "plugin", "inspect", "../../../plugins/secret/secret.wasm")
	require.NoError(t, err)
	assert.Regexp(t, `Capabilities +skip\n`, out)
	assert.Contains(t, out, "Config schema: none")
	out, _, err = refractctl(t, "plugin", "inspect", "../../../plugins/pod/pod.wasm")
	require.NoError(t, err)
	assert.Regexp(t, `Capabilities +none\n`, out)
	assert.Regexp(t, `(?s)Config schema:\n  additionalProperties: false\n.*virtualStorageClass:`, out)
	module := noted(t, t.TempDir(), "mine", "hook", "{kinds: [Service], replaces: service, priority: 7, fresh: true}")
	out, _, err = refractctl(t, "plugin", "inspect", module)
	require.NoError(t, err)
	for _, row := range []string{`Only kinds +Service\n`, `Replaces +service\n`, `Priority +7\n`, `Fresh +memory`} {
		assert.Regexp(t, row, out)
	}
	out, _, err = refractctl(t, "plugin", "inspect", module, "-o", "json")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)"options": \{.*"replaces": "service"`, out)
	out, _, err = refractctl(t, "plugin", "inspect", "../../../plugins/secret/secret.wasm", "-o", "json")
	require.NoError(t, err)
	assert.Regexp(t, `"capabilities": \[\s*"skip"\s*\]`, out)
	out, _, err = refractctl(t, "plugin", "inspect", "../../../plugins/pod/pod.wasm", "-o", "json")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)"configSchema": \{.*"virtualStorageClass"`, out)
}

// TestPluginInspectShowsEmptyLists checks that an empty list, which excludes everything, is not shown like a missing
// list, and that every list with restrictions is shown.
func TestPluginInspectShowsEmptyLists(t *testing.T) {
	module := noted(t, t.TempDir(), "mine", "hook", "{kinds: [], writes: [], capabilities: []}")
	out, _, err := refractctl(t, "plugin", "inspect", module)
	require.NoError(t, err)
	for _, row := range []string{`Only kinds +none\n`, `Only writes +none\n`, `Only capabilities +none\n`} {
		assert.Regexp(t, row, out)
	}
	out, _, err = refractctl(t, "plugin", "inspect", module, "-o", "json")
	require.NoError(t, err)
	assert.Regexp(t, `(?s)"options": \{.*"writes": \[\]`, out)
	out, _, err = refractctl(t, "plugin", "inspect", noted(t, t.TempDir(), "mine", "hook", "priority: 1"))
	require.NoError(t, err)
	assert.NotContains(t, out, "Only")
}

// TestPluginInspectCutsNoPermission checks that a broad path is shown even among many harmless ones, and that text of
// the module cannot look like a row.
func TestPluginInspectCutsNoPermission(t *testing.T) {
	var writes []string
	for n := range 120 {
		writes = append(writes, fmt.Sprintf(`"metadata.annotations[harmless.example.org/%s-%d]"`, strings.Repeat("x", 50), n))
	}
	writes = append(writes, `"spec.template"`, `"spec"`, `"*"`)
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"sly","version":"1","kinds":["Pod","*"],"hooks":["outgoing"],"writes":[`+strings.Join(writes, ",")+`]}`, "",
		`(func (export "outgoing") (result i32) (i32.const 0))`))
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "sly.wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	require.NoError(t, os.WriteFile(strings.TrimSuffix(module, "wasm")+"yaml", []byte("writes: ["+strings.Join(writes, ",")+"]"), 0o600))
	out, _, err := refractctl(t, "plugin", "inspect", module)
	require.NoError(t, err)
	for _, row := range []string{`\nKinds +\*, Pod\n`, `\nWrites +\*, spec, spec\.template, metadata.*x-119\]\n`, `\nOnly writes +\*, spec, spec\.template, metadata.*x-119\]\n`} {
		assert.Regexp(t, row, out)
	}
	version := func(gap string) (string, error) {
		wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"sly","version":"1.0`+gap+`Writes   nothing","kinds":["*"],"hooks":["outgoing"],"writes":["*"]}`, "",
			`(func (export "outgoing") (result i32) (i32.const 0))`))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(module, wasm, 0o600))
		out, _, err := refractctl(t, "plugin", "inspect", module)
		return out, err
	}
	out, err = version(strings.Repeat(" ", 58))
	require.NoError(t, err)
	assert.Contains(t, out, "sly 1.0 Writes nothing\n")
	for _, gap := range []string{"\u00a0", "\u2800", "\u3164"} {
		_, err = version(strings.Repeat(gap, 58))
		assert.ErrorContains(t, err, "its version has", "%q", gap)
	}
}

// TestPluginWarningsArePrinted checks that inspect and run print warnings about options and manifests that have no
// effect.
func TestPluginWarningsArePrinted(t *testing.T) {
	objects := writeObjects(t, podAndService)
	for options, want := range map[string]string{
		"limits: {fuel: 0}":    "limits.fuel is 0",
		"# writes: []":         "mine.yaml is empty",
		"writes: [spec.ports]": "writes: spec.ports",
		"capabilities: [skip]": "capabilities: skip",
	} {
		module := noted(t, t.TempDir(), "mine", "hook", options)
		out, progress, err := refractctl(t, "plugin", "inspect", module)
		require.NoError(t, err)
		assert.Regexp(t, `Warning +.*`+want, out)
		assert.Equal(t, 1, strings.Count(out+progress, want), out+progress)
		out, _, err = refractctl(t, "plugin", "inspect", module, "-o", "json")
		require.NoError(t, err)
		assert.Regexp(t, `"warnings": \[\s*".*`+want, out)
		if strings.HasPrefix(options, "writes") {
			continue // plugin run would fail in a later step
		}
		for _, chain := range []string{"--chain", "--chain=false"} {
			_, progress, err = refractctl(t, "plugin", "run", module, "-f", objects, chain)
			require.NoError(t, err)
			assert.Contains(t, progress, "warning of mine: ")
			assert.Contains(t, progress, want)
		}
	}
}

// TestPluginRunSaysWhyAnObjectCannotBeRead checks that the error names the actual cause.
func TestPluginRunSaysWhyAnObjectCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"Pod","spec":{"n":1e400}}`: "document 1 cannot be read, ",
		"[1]":                               "must be an object",
		"1":                                 "must be an object",
		"null":                              "holds no object",
	} {
		_, _, err := refractctl(t, "plugin", "run", "../../../plugins/pod/pod.wasm", "-f", writeObjects(t, text))
		require.ErrorContains(t, err, want)
		if strings.Contains(text, "1e400") {
			assert.NotContains(t, err.Error(), "must be an object")
			assert.Regexp(t, "1e400|Inf", err.Error())
		}
	}
}

// oddities contains values that an API server accepts in an object, but that YAML or a number parser might not accept.
const oddities = `{"text":"del\u007f c1\u0080 next\u0085line fffe\ufffe bom\ufeff esc\u001b nul\u0000 sep\u2028 quote\" 😀","yes":"yes","octal":"0o17","~":"~","":"no key",` +
	`"n":null,"list":[],"map":{},"nested":[[[{"a":[{}]}]]],"max":9223372036854775807,"min":-9223372036854775808,"odd":9007199254740993,"huge":1e21,"tiny":1e-7,"half":0.5}`

// TestPluginRunPrintsEveryObject checks that the output in each format can be read as the same object as the input,
// and that --diff shows only the change.
func TestPluginRunPrintsEveryObject(t *testing.T) {
	long := strings.Repeat("k", 3000)
	spec := strings.TrimSuffix(oddities, "}") + `,"` + long + `":1}`
	deletion := strings.ReplaceAll(spec, `\u007f`, "\x7f") // encoding/json writes DEL unescaped
	file := filepath.Join(t.TempDir(), "gadget.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"a","labels":{"strip.example.com/x":"1"}},"spec":`+deletion+`}`), 0o600))
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"strip","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`,
		`(import "refract" "remove" (func $remove (param i32 i32 i32) (result i32)))`,
		`(data (i32.const 0) "metadata.labels") (func (export "outgoing") (result i32) (drop (call $remove (i32.const 1) (i32.const 0) (i32.const 15))) (i32.const 0))`))
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "strip.wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	var want any
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(spec), &want))
	for _, format := range []string{"json", "yaml"} {
		out, _, err := refractctl(t, "plugin", "run", module, "-f", file, "-o", format)
		require.NoError(t, err, format)
		again := filepath.Join(t.TempDir(), "again."+format)
		require.NoError(t, os.WriteFile(again, []byte(out), 0o600))
		objects, err := plugins.ReadObjects("filename", again, nil)
		require.NoError(t, err, out)
		require.Empty(t, cmp.Diff(want, objects[0]["spec"]), format)
		require.NotContains(t, objects[0]["metadata"], "labels")
	}
	out, _, err := refractctl(t, "plugin", "run", module, "-f", file, "--diff")
	require.NoError(t, err)
	if !strings.Contains(out, "-    strip.example.com/x: \"1\"") || strings.Count(out, "\n-") != 2 || strings.Contains(out, "\n+  ") {
		t.Errorf("diff %s", out)
	}
}

// TestPluginRunErrorsNameTheObject checks that errors name the object, even if the file has only one object.
func TestPluginRunErrorsNameTheObject(t *testing.T) {
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"bad","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`, "",
		`(func (export "outgoing") (result i32) (unreachable))`))
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "bad.wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	for _, chain := range []string{"--chain", "--chain=false"} {
		_, _, err = refractctl(t, "plugin", "run", module, "-f", "testdata/service.yaml", chain)
		require.ErrorContains(t, err, "service/")
	}
	podPlugin := "../../../plugins/pod/pod.wasm"
	_, _, err = refractctl(t, "plugin", "run", podPlugin, "-f", writeObjects(t, "{apiVersion: v1, kind: Service, metadata: {name: web}}"))
	require.EqualError(t, err, `service/web: plugin pod is not for the kind Service: its manifest says ["Pod"]`)
	_, _, err = refractctl(t, "plugin", "run", podPlugin, "-f", writeObjects(t, "{apiVersion: v1, kind: Service, metadata: {name: web}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: key}}"))
	require.ErrorContains(t, err, "object 1 of 2 (service/web): ")
	require.ErrorContains(t, err, "nor does it run on the other 1")
	file := filepath.Join(t.TempDir(), "no-version.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kind: Service\nmetadata: {name: web}\n"), 0o600))
	_, _, err = refractctl(t, "plugin", "run", module, "-f", file)
	require.ErrorContains(t, err, "service/web")
}
