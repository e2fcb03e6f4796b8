// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/wattest"
)

// portableModule returns a module that copies its input to its output, byte by byte, through Extism's memory.
func portableModule() *wasmModule {
	m := newModule()
	length := m.importFunc(moduleExtism, "input_length", nil, []byte{i64})
	load := m.importFunc(moduleExtism, "input_load_u8", []byte{i64}, []byte{i32})
	alloc := m.importFunc(moduleExtism, "alloc", []byte{i64}, []byte{i64})
	store := m.importFunc(moduleExtism, "store_u8", []byte{i64, i32}, nil)
	out := m.importFunc(moduleExtism, "output_set", []byte{i64, i64}, nil)
	_ = m.function("outgoing", nil, []byte{i32}, nil)
	// The body begins with the declaration of three locals of type i64: n, at and i.
	body := []byte{1, 3, i64}
	body = append(body, 0x10, byte(length), 0x22, 0, 0x10, byte(alloc), 0x21, 1) // n = length; at = alloc(n)
	body = append(body, 0x02, 0x40, 0x03, 0x40)                                  // block loop
	body = append(body, 0x20, 2, 0x20, 0, 0x5a, 0x0d, 1)                         // if i >= n break
	body = append(body, 0x20, 1, 0x20, 2, 0x7c, 0x20, 2, 0x10, byte(load), 0x10, byte(store))
	body = append(body, 0x20, 2, 0x42, 1, 0x7c, 0x21, 2, 0x0c, 0, 0x0b, 0x0b) // i++
	body = append(body, 0x20, 1, 0x20, 0, 0x10, byte(out), 0x41, 0, 0x0b)
	m.code[0] = append(uleb(uint64(len(body))), body...)
	return m
}

// portableAnswer returns a module with a constant output or error.
func portableAnswer(function, text string) []byte {
	m := newModule()
	alloc := m.importFunc(moduleExtism, "alloc", []byte{i64}, []byte{i64})
	store := m.importFunc(moduleExtism, "store_u8", []byte{i64, i32}, nil)
	params := []byte{i64}
	if function == "output_set" {
		params = []byte{i64, i64}
	}
	end := m.importFunc(moduleExtism, function, params, nil)
	size := append([]byte{0x42}, sleb(int64(len(text)))...)
	body := append(append([]byte{}, size...), 0x10, byte(alloc), 0x1a)
	// The text is stored from address 8, which is the address of the first block.
	for i := range len(text) {
		body = append(append(append(body, 0x42), sleb(int64(8+i))...), 0x41)
		body = append(append(body, sleb(int64(text[i]))...), 0x10, byte(store))
	}
	body = append(body, 0x42, 8)
	if function == "output_set" {
		body = append(body, size...)
	}
	m.function("outgoing", nil, nil, append(body, 0x10, byte(end)))
	return m.bytes()
}

func TestPortable(t *testing.T) {
	h := newHost(t)
	object := map[string]any{"kind": "Service", "spec": map[string]any{"a": int64(1), "b": []any{"x"}}}
	for name, c := range map[string]struct {
		wasm []byte
		want map[string]any
		says string
	}{
		"object":     {portableAnswer("output_set", `{"kind":"Service","spec":{"a":1,"c":2.5}}`), map[string]any{"kind": "Service", "spec": map[string]any{"a": int64(1), "c": 2.5}}, ""},
		"nothing":    {portableAnswer("output_set", ``), object, ""},
		"skip":       {portableAnswer("output_set", `{"skip":"why"}`), object, ""},
		"no skip":    {portableAnswer("output_set", `{"skip":false}`), object, ""},
		"null skip":  {portableAnswer("output_set", `{"skip":null}`), nil, "skip that is neither"},
		"0 skip":     {portableAnswer("output_set", `{"skip":0}`), nil, "skip that is neither"},
		"empty skip": {portableAnswer("output_set", `{"skip":""}`), nil, "skip that is neither"},
		"list skip":  {portableAnswer("output_set", `{"skip":[]}`), nil, "skip that is neither"},
		"two skips":  {portableAnswer("output_set", `{"skip":false,"skip":"x"}`), nil, `duplicate field "skip"`},
		"two fields": {portableAnswer("output_set", `{"kind":"Service","spec":{"a":1,"a":2}}`), nil, `duplicate field "spec.a"`},
		"reason":     {portableAnswer("output_set", `{"skip":true,"reason":"x"}`), nil, "the reason goes into skip itself"},
		"echo":       {portableModule().bytes(), nil, "neither"},
		"error":      {portableAnswer("error_set", `bad weather`), nil, "bad weather"},
		"no JSON":    {portableAnswer("output_set", `{"kind"`), nil, "decoding its output"},
		"no object":  {portableAnswer("output_set", `1`), nil, "decoding its output"},
		"empty":      {portableAnswer("output_set", `{}`), nil, "neither an object"},
		"guarded":    {portableAnswer("output_set", `{"kind":"Other","spec":{}}`), nil, "may not change kind"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, h, "p", c.wasm, declared)
			if !p.Portable() || !reflect.DeepEqual(p.Manifest().Hooks, []string{"outgoing"}) {
				t.Errorf("%+v", p.Manifest())
			}
			got, out, err := run(t, object, p)
			if name == "echo" {
				checkEcho(t, got, err)
				return
			}
			if c.says == "" && (err != nil || !reflect.DeepEqual(got, c.want)) {
				t.Errorf("%v, %v", got, err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if out.Skipped != (name == "skip") {
				t.Errorf("%+v", out)
			}
		})
	}
}

// declared contains the options that a module without a manifest needs.
var declared = PluginConfig{Kinds: []string{"*"}, Writes: []string{"*"}, Capabilities: []string{CapabilitySkip}}

func TestPortableDeclaresItsPowers(t *testing.T) {
	h := newHost(t)
	answer := portableAnswer("output_set", `{"skip":"why"}`)
	for name, pc := range map[string]PluginConfig{"nothing": {}, "no kinds": {Writes: []string{"*"}}, "no writes": {Kinds: []string{"*"}}} {
		var e *LoadError
		if _, err := h.Load(t.Context(), "p", answer, pc); !errors.As(err, &e) || !strings.Contains(err.Error(), "set kinds and writes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := mustLoad(t, h, "p", answer, PluginConfig{Kinds: []string{"*"}, Writes: []string{"spec"}})
	if _, out, err := run(t, serviceObject(), p); err == nil || out.Skipped || !strings.Contains(err.Error(), `declare "skip"`) {
		t.Errorf("skipping undeclared: %+v, %v", out, err)
	}
	p = mustLoad(t, h, "p", portableAnswer("output_set", `{"spec":{"x":"1"}}`), PluginConfig{Kinds: []string{"*"}, Writes: []string{"metadata.labels"}})
	var e *GuardError
	if _, _, err := run(t, map[string]any{}, p); !errors.As(err, &e) || e.Path != "spec.x" {
		t.Errorf("writing undeclared: %v", err)
	}
}

// TestPortableTakesLargeAnswers checks that answers that repeat the largest objects of API servers are accepted with
// the default limits. TestPortableTakesEveryObject checks answers that are JSON Patches.
func TestPortableTakesLargeAnswers(t *testing.T) {
	const size = 3 << 19
	numbers, digits, empties, keys := make([]any, 300_000), make([]any, size/2), make([]any, size/3), map[string]any{}
	for n := range numbers {
		numbers[n] = int64(1000 + n%9000)
	}
	// This list has one digit per value, because a JSON text of the same size cannot contain more values.
	for n := range digits {
		digits[n] = int64(n % 10)
	}
	for n := range empties {
		empties[n] = map[string]any{}
	}
	for n := range 100_000 {
		keys[fmt.Sprintf("k%05d", n)] = fmt.Sprintf("%04d", n%10_000)
	}
	chain, err := NewChain(Outgoing, DefaultGuard("ConfigMap"), mustLoad(t, newHost(t), "p", portableIdentity(), declared))
	require.NoError(t, err)
	for name, data := range map[string]any{"text": strings.Repeat("x", size), "numbers": numbers, "digits": digits, "empty maps": empties, "keys": keys} {
		object := map[string]any{"kind": "ConfigMap", "data": data}
		doc := document.New()
		doc.Reset(object)
		if _, err := chain.Run(t.Context(), doc, &Env{}); err != nil || !reflect.DeepEqual(doc.Value(), object) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPortableAnswersAreLimited checks that the maximum size of an answer is the default plus an amount for each byte
// of the input.
func TestPortableAnswersAreLimited(t *testing.T) {
	h := newHost(t)
	list := func(n int) string { return `{"list":[` + strings.Repeat("1,", n) + `1]}` }
	object := map[string]any{"spec": strings.Repeat("x", 1000)}
	for answer, isAllowed := range map[string]bool{list(100): true, list(900): false, `{"x":"` + strings.Repeat("y", 1500) + `"}`: true, `{"x":"` + strings.Repeat("y", 2500) + `"}`: false} {
		pc := declared
		pc.Limits.OutputBytes = 1000
		_, _, err := run(t, object, mustLoad(t, h, "p", portableAnswer("output_set", answer), pc))
		var limit *LimitError
		if errors.As(err, &limit) == isAllowed || !isAllowed && limit.Limit != LimitOutput {
			t.Errorf("an answer of %d bytes: %v", len(answer), err)
		}
	}
}

// portableIdentity returns a module that returns the object of its input, for a call without context and
// configuration. It copies whole words. The bytes after the object in the input complete the last word.
func portableIdentity() []byte {
	const before, behind = len(`{"object":`), len(`,"context":null,"config":null}`)
	wasm, err := wattest.Assemble(fmt.Sprintf(`(module
	(import "extism:host/env" "input_length" (func $length (result i64)))
	(import "extism:host/env" "input_load_u64" (func $load (param i64) (result i64)))
	(import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
	(import "extism:host/env" "store_u64" (func $store (param i64 i64)))
	(import "extism:host/env" "output_set" (func $output (param i64 i64)))
	(memory (export "memory") 1)
	(func (export "outgoing") (result i32) (local $n i64) (local $at i64) (local $i i64)
	  (local.set $n (i64.sub (call $length) (i64.const %d)))
	  (local.set $at (call $alloc (local.get $n)))
	  (block $done (loop $more
	    (br_if $done (i64.ge_u (local.get $i) (local.get $n)))
	    (call $store (i64.add (local.get $at) (local.get $i)) (call $load (i64.add (local.get $i) (i64.const %d))))
	    (local.set $i (i64.add (local.get $i) (i64.const 8)))
	    (br $more)))
	  (call $output (local.get $at) (local.get $n))
	  (i32.const 0)))`, before+behind, before))
	if err != nil {
		panic(err)
	}
	return wasm
}

// checkEcho checks the result of a module that returns its whole input. The guard must reject this result, because
// the parts of the input would be new fields of the object, and its kind would be missing.
func checkEcho(t *testing.T, _ map[string]any, err error) {
	t.Helper()
	var e *GuardError
	if !errors.As(err, &e) || e.Path != "kind" {
		t.Errorf("%v, want the guard to miss the kind", err)
	}
}
