// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/wattest"
)

const gadgetText = `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"labels":{"app":"web"},"name":"a","uid":"7"},` +
	`"spec":{"id":9007199254740993,"list":[1,2],"quota":9223372036854775807,"ratio":0.1,"whole":80}}`

func decodeObject(t testing.TB, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, json.UnmarshalCaseSensitivePreserveInts([]byte(text), &object))
	return object
}

func encodeObject(object map[string]any) string { return string(document.Of(object).AppendJSON(nil)) }

// TestPortablePatch checks that a JSON Patch changes only the fields that it names. All other fields keep their
// numbers, including numbers that a float cannot represent.
func TestPortablePatch(t *testing.T) {
	h := newHost(t)
	for name, c := range map[string]struct {
		patch    string
		old, new string // replacement in gadgetText
	}{
		"one label":     {`[{"op":"add","path":"/metadata/labels/team","value":"x"}]`, `"app":"web"`, `"app":"web","team":"x"`},
		"white space":   {" \n[ {\"op\":\"replace\",\"path\":\"/metadata/labels\",\"value\":{}}]\n", `{"app":"web"}`, `{}`},
		"no operations": {`[]`, ``, ``},
		"test":          {`[{"op":"test","path":"/spec/id","value":9007199254740993},{"op":"remove","path":"/spec/ratio"}]`, `"ratio":0.1,`, ``},
		"move":          {`[{"op":"move","from":"/spec/id","path":"/spec/jd"}]`, `"id":9007199254740993`, `"jd":9007199254740993`},
		"copy":          {`[{"op":"copy","from":"/spec/quota","path":"/spec/list/1"}]`, `[1,2]`, `[1,9223372036854775807,2]`},
		"what is there": {`[{"op":"add","path":"/kind","value":"Gadget"},{"op":"add","path":"/spec/whole","value":80.0}]`, ``, ``},
		"unforgeable":   {`[{"op":"remove","path":"/metadata/uid"}]`, `,"uid":"7"`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, h, "p", portableAnswer("output_set", c.patch), declared)
			object := decodeObject(t, gadgetText)
			got, out, err := run(t, object, p)
			require.NoError(t, err)
			require.Equal(t, strings.Replace(gadgetText, c.old, c.new, 1), encodeObject(got))
			require.Equal(t, gadgetText, encodeObject(object), "the object in the cache was modified")
			require.False(t, out.Skipped)
		})
	}
}

// TestPortablePatchIsRefused checks that an error names the operation and its path, and that none of the operations
// is applied.
func TestPortablePatchIsRefused(t *testing.T) {
	h := newHost(t)
	const first = `[{"op":"add","path":"/metadata/labels/team","value":"x"},`
	for patch, says := range map[string]string{
		first + `{"op":"remove","path":"/spec/none"}]`:                      `operation 1 of its JSON Patch: remove "/spec/none": nothing is at "/spec/none"`,
		first + `{"op":"test","path":"/spec/id","value":9007199254740992}]`: `operation 1 of its JSON Patch: test "/spec/id": the value there is another one`,
		first + `{"op":"merge","path":"/spec/id"}]`:                         `operation 1 of its JSON Patch: "op" is "merge"`,
		first + `{"op":"add","path":"/spec/x"}]`:                            `operation 1 of its JSON Patch: add "/spec/x": "value" is missing`,
		first + `7]`:                                                        `operation 1 of its JSON Patch: is int`,
		first + `{"op":"add","op":"remove","path":"/spec/id","value":1}]`:   `decoding its JSON Patch, duplicate field "[1].op"`,
		first + `{"op":"add","path":"/spec/x","value":{"a":1,"a":2}}]`:      `decoding its JSON Patch, duplicate field "[1].value.a"`,
		first:   `decoding its JSON Patch, unexpected end`,
		`[] []`: `decoding its JSON Patch, invalid character`,
		first + `{"op":"add","path":"/spec/x","value":1e400}]`:                            `decoding its JSON Patch`,
		`[{"op":"replace","path":"/metadata/name","value":"b"}]`:                          `may not change metadata.name`,
		`[{"op":"remove","path":"/metadata"}]`:                                            `may not change metadata`,
		`[{"op":"replace","path":"","value":{}}]`:                                         `may not change`,
		`[{"op":"move","from":"/kind","path":"/spec/kind"}]`:                              `may not change`,
		`[{"op":"copy","from":"/spec/list","path":"/metadata/finalizers"}]`:               `may not change metadata.finalizers`,
		`[{"op":"replace","path":"/metadata/uid","value":"8"}]`:                           `may not change metadata.uid`,
		`[{"op":"add","path":"/metadata/labels/offloading.liqo.io~1origin","value":"x"}]`: `may not change metadata.labels[offloading.liqo.io/origin]`,
	} {
		p := mustLoad(t, h, "p", portableAnswer("output_set", patch), declared)
		got, _, err := run(t, decodeObject(t, gadgetText), p)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", patch, err, says)
		}
		require.Equal(t, gadgetText, encodeObject(got), patch)
	}
}

// TestPortablePatchIsNarrowed checks that PluginConfig.Writes also restricts the operations of a patch.
func TestPortablePatchIsNarrowed(t *testing.T) {
	h := newHost(t)
	for path, isAllowed := range map[string]bool{"/metadata/labels/team": true, "/metadata/annotations": false, "/spec/id": false} {
		p := mustLoad(t, h, "p", portableAnswer("output_set", `[{"op":"add","path":"`+path+`","value":"x"}]`), PluginConfig{Kinds: []string{"*"}, Writes: []string{"metadata.labels"}})
		_, _, err := run(t, decodeObject(t, gadgetText), p)
		var refused *GuardError
		if errors.As(err, &refused) == isAllowed || !isAllowed && !strings.Contains(refused.Rule, "writes") {
			t.Errorf("%s: %v", path, err)
		}
	}
	locked := mustLoad(t, h, "p", portableAnswer("output_set", `[{"op":"add","path":"/metadata/labels/team","value":"x"}]`), PluginConfig{Kinds: []string{"*"}, Writes: []string{}})
	_, _, err := run(t, decodeObject(t, gadgetText), locked)
	var refused *GuardError
	require.ErrorAs(t, err, &refused)
}

// TestPortablePatchIsLimited checks that a patch is stopped if the host has to work or write more than the limits
// allow.
func TestPortablePatchIsLimited(t *testing.T) {
	h := newHost(t)
	operations := func(operation string, n int) string {
		return "[" + strings.Repeat(operation+",", n-1) + operation + "]"
	}
	limited := func(l Limits, patch string) error {
		pc := declared
		pc.Limits = l
		_, _, err := run(t, decodeObject(t, gadgetText), mustLoad(t, h, "p", portableAnswer("output_set", patch), pc))
		return err
	}
	doubling := operations(`{"op":"copy","from":"/spec","path":"/spec/x"}`, 40)
	var limit *LimitError
	require.ErrorAs(t, limited(Limits{OutputBytes: 1 << 14}, doubling), &limit)
	require.Equal(t, LimitOutput, limit.Limit)
	require.ErrorAs(t, limited(Limits{Handles: 10}, operations(`{"op":"add","path":"/spec/list/0","value":1}`, 40)), &limit)
	require.Equal(t, LimitHandles, limit.Limit)
}

// TestNumbersOfWholeObject checks that the numbers in an answer that contains the whole object have the types and
// values in the table in docs/abi.md.
func TestNumbersOfWholeObject(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct{ was, answer, becomes string }{
		{`80`, `80`, `80`},
		{`80`, `80.0`, `80`},
		{`80`, `8e1`, `80`},
		{`80.5`, `80.50`, `80.5`},
		{`9007199254740993`, `9007199254740993`, `9007199254740993`},
		{`9007199254740993`, `9007199254740992`, `9007199254740992`},
		{`9223372036854775807`, `9223372036854775807`, `9223372036854775807`},
		{`9223372036854775807`, `9223372036854776000`, `9223372036854776000`},
		{`18446744073709551615`, `18446744073709552000`, `18446744073709552000`},
		{`80`, `"80"`, `"80"`},
		{`80`, `null`, `null`},
		{`80`, `1e400`, ``},
		{`80`, `NaN`, ``},
	} {
		p := mustLoad(t, h, "p", portableAnswer("output_set", `{"n":`+c.answer+`}`), declared)
		got, _, err := run(t, decodeObject(t, `{"n":`+c.was+`}`), p)
		if c.becomes == "" {
			require.ErrorContains(t, err, "decoding its output", c.answer)
			continue
		}
		require.NoError(t, err, c.answer)
		require.Equal(t, `{"n":`+c.becomes+`}`, encodeObject(got), "%s answered with %s", c.was, c.answer)
	}
}

// FuzzPortableAnswer runs a module whose answer is arbitrary bytes. It checks that a result that the guard has accepted
// has the identity of the object, that an error is of a type of this package, and that the cached object does not
// change.
func FuzzPortableAnswer(f *testing.F) {
	for _, answer := range []string{
		``, `null`, `{}`, `{"skip":true}`, `{"skip":"why","x":1}`, `{"kind":"Gadget"}`, gadgetText, `[]`, ` [null]`, `[[`,
		`[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"move","from":"/spec/list/0","path":"/spec/list/-"}]`,
		`[{"op":"copy","from":"","path":"/spec"},{"op":"test","path":"/kind","value":"Gadget"},{"op":"replace","path":"/metadata/name","value":7}]`,
		`[{"op":"remove","path":"/metadata/uid"},{"op":"remove","path":"/metadata"}]`,
	} {
		f.Add([]byte(answer))
	}
	p := mustLoad(f, newHost(f), "p", configuredAnswer(f), PluginConfig{
		Kinds: []string{"*"}, Writes: []string{"*"}, Capabilities: []string{CapabilitySkip}, Limits: Limits{OutputBytes: 1 << 14, Handles: 1 << 10},
		Config: map[string]any{}})
	chain, err := NewChain(Outgoing, DefaultGuard("Gadget.example.org"), p)
	require.NoError(f, err)
	object, pristine := decodeObject(f, gadgetText), decodeObject(f, gadgetText)
	doc, env := document.New(), &Env{}
	f.Fuzz(func(t *testing.T, answer []byte) {
		p.module.Config["answer"] = string(answer)
		doc.Reset(object)
		out, err := chain.Run(t.Context(), doc, env)
		if err != nil {
			checkTyped(t, err)
		} else if !out.Skipped {
			checkIdentity(t, doc.Value())
		}
		doc.Restore()
		if !reflect.DeepEqual(object, pristine) {
			t.Fatal("the object in the cache was modified")
		}
	})
}

// configuredAnswer returns a module whose output is the text "answer" of its configuration.
func configuredAnswer(t testing.TB) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(`(module
	  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
	  (import "extism:host/env" "store_u8" (func $store (param i64 i32)))
	  (import "extism:host/env" "length" (func $length (param i64) (result i64)))
	  (import "extism:host/env" "config_get" (func $config (param i64) (result i64)))
	  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
	  (memory (export "memory") 1) (data (i32.const 0) "answer")
	  (func (export "outgoing") (result i32) (local $block i64) (local $at i32)
	    (local.set $block (call $alloc (i64.const 6)))
	    (loop $more
	      (call $store (i64.add (local.get $block) (i64.extend_i32_u (local.get $at))) (i32.load8_u (local.get $at)))
	      (local.set $at (i32.add (local.get $at) (i32.const 1)))
	      (br_if $more (i32.lt_u (local.get $at) (i32.const 6))))
	    (local.set $block (call $config (local.get $block)))
	    (call $output (local.get $block) (call $length (local.get $block)))
	    (i32.const 0)))`)
	require.NoError(t, err)
	return wasm
}

// checkTyped checks that an error of a run is of a type of this package.
func checkTyped(t *testing.T, err error) {
	t.Helper()
	switch err.(type) {
	case *AccessError, *LimitError, *OutOfFuelError, *PluginFailedError, *TrapError, *GuardError:
	default:
		t.Fatalf("%T %v is none of the package's errors", err, err)
	}
}

func checkIdentity(t *testing.T, object map[string]any) {
	t.Helper()
	metadata, _ := object["metadata"].(map[string]any)
	if object["kind"] != "Gadget" || object["apiVersion"] != "example.org/v1" || metadata["name"] != "a" {
		t.Fatalf("the guard let through %v", object)
	}
	if uid, ok := metadata["uid"]; ok && uid != "7" || metadata["finalizers"] != nil || metadata["ownerReferences"] != nil {
		t.Fatalf("the guard let through %v", metadata)
	}
}
