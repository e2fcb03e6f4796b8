// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/wattest"
)

// observer is the text of a guest that calls one host function and reports everything that it observes: the result of
// the function, twice, the size of the memory, and a hash of the memory, which may contain results. On an earlier
// object, it first leaves the traces that the label of this object lists: c calls the function, g grows the memory, f
// ends with an error, and t traps. $call is the function. Its result is an i64.
const observer = `
  (global $hash (mut i64) (i64.const 0))
  (func $see (param i64)
    (global.set $hash (i64.mul (i64.xor (global.get $hash) (local.get 0)) (i64.const 1099511628211))))
  (func $look (local $at i32)
    (call $see (call $call)) (call $see (call $call))
    (call $see (i64.extend_i32_u (memory.size)))
    (loop $more
      (call $see (i64.load (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $more (i32.lt_u (local.get $at) (i32.const 65536)))))
  (func $hex (param $at i32) (local $i i32) (local $digit i32)
    (loop $more
      (local.set $digit (i32.and (i32.wrap_i64 (i64.shr_u (global.get $hash) (i64.extend_i32_u (i32.shl (local.get $i) (i32.const 2))))) (i32.const 15)))
      (i32.store8 (i32.add (local.get $at) (local.get $i)) (i32.add (local.get $digit) (i32.const 97)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $i) (i32.const 16)))))
  (func $do (param $trace i32) (result i32)
    (if (i32.eq (local.get $trace) (i32.const 99)) (then (drop (call $call))))
    (if (i32.eq (local.get $trace) (i32.const 103)) (then (drop (memory.grow (i32.const 1)))))
    (if (i32.eq (local.get $trace) (i32.const 116)) (then (unreachable)))
    (i32.eq (local.get $trace) (i32.const 102)))`

// nativeObserver reads the traces to leave from the label "do", and reports in the label "seen".
const nativeObserver = observer + `
  (data (i32.const 0) "metadata.labels.do") (data (i32.const 32) "metadata.labels.seen")
  (data (i32.const 64) "list") (data (i32.const 80) "10.0.0.1") (data (i32.const 96) "status.x") (data (i32.const 112) "missing") (data (i32.const 128) "{}")
  (func (export "outgoing") (result i32) (local $n i32) (local $at i32)
    (local.set $n (call $the_string (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 256) (i32.const 16)))
    (if (i32.eq (local.get $n) (i32.const -1)) (then
      (call $look) (call $hex (i32.const 256))
      (call $the_set_string (i32.const 1) (i32.const 32) (i32.const 20) (i32.const 256) (i32.const 16))
      (return (i32.const 0))))
    (loop $more
      (if (i32.lt_u (local.get $at) (local.get $n)) (then
        (if (call $do (i32.load8_u (i32.add (i32.const 256) (local.get $at)))) (then (return (i32.const 1))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $more))))
    (i32.const 0)))`

// portableObserver reads the traces to leave from its input, and reports in the reason for skipping the object.
const portableObserver = observer + `
  (data (i32.const 0) "{\"skip\":\"................\"}")
  (func (export "outgoing") (result i32) (local $at i64) (local $trace i32) (local $block i64)
    (local.set $at (i64.const 38))
    (if (i32.ne (call $the_input_load_u8 (i64.const 30)) (i32.const 123)) (then (unreachable)))
    (if (i32.eq (call $the_input_load_u8 (i64.const 31)) (i32.const 125)) (then
      (call $look) (call $hex (i32.const 9))
      (local.set $block (call $the_alloc (i64.const 27)))
      (local.set $at (i64.const 0))
      (loop $copy
        (call $the_store_u8 (i64.add (local.get $block) (local.get $at)) (i32.load8_u (i32.wrap_i64 (local.get $at))))
        (local.set $at (i64.add (local.get $at) (i64.const 1)))
        (br_if $copy (i64.lt_u (local.get $at) (i64.const 27))))
      (call $the_output_set (local.get $block) (i64.const 27))
      (return (i32.const 0))))
    (loop $more
      (local.set $trace (call $the_input_load_u8 (local.get $at)))
      (if (i32.ne (local.get $trace) (i32.const 34)) (then
        (if (call $do (local.get $trace)) (then (return (i32.const 1))))
        (local.set $at (i64.add (local.get $at) (i64.const 1)))
        (br $more))))
    (i32.const 0)))`

const (
	label, list, ip, status, missing = "(i32.const 0) (i32.const 15)", "(i32.const 64) (i32.const 4)", "(i32.const 80) (i32.const 8)", "(i32.const 96) (i32.const 8)", "(i32.const 112) (i32.const 7)"
	room                             = "(i32.const 1024) (i32.const 512)"
	aBlock                           = "(call $new_block)"
)

// observed contains the arguments with which the observers call each function. "" means that the function has no
// parameters.
var observed = map[string]map[string]string{
	moduleRefract: {
		"kind": "(i32.const 1) " + label, "len": "(i32.const 1) " + label, "get": "(i32.const 1) " + label, "field": "(i32.const 1) " + list, "elem": "(call $the_get (i32.const 1) " + list + ") (i32.const 0)",
		"string": "(i32.const 1) " + missing + " " + room, "string_eq": "(i32.const 1) " + missing + " " + ip, "int": "(i32.const 1) " + missing + " (i64.const 3)", "float": "(i32.const 1) " + missing + " (f64.const 3)",
		"bool": "(i32.const 1) " + missing + " (i32.const 1)", "keys": "(i32.const 1) (i32.const 0) (i32.const 0) " + room, "json": "(i32.const 1) " + list + " " + room,
		"set_string": "(i32.const 1) " + status + " " + ip, "set_int": "(i32.const 1) " + status + " (i64.const 3)", "set_float": "(i32.const 1) " + status + " (f64.const 3)", "set_bool": "(i32.const 1) " + status + " (i32.const 1)",
		"set_null": "(i32.const 1) " + status, "set_map": "(i32.const 1) " + status, "set_list": "(i32.const 1) " + status, "ensure_map": "(i32.const 1) " + status,
		"set_json": "(i32.const 1) " + status + " (i32.const 128) (i32.const 2)", "copy": "(i32.const 1) " + status + " (call $the_get (i32.const 1) " + list + ")", "remove": "(i32.const 1) " + missing,
		"remove_elem": "(call $the_get (i32.const 1) " + list + ") (i32.const 0)", "remove_keys": "(i32.const 1) " + list + " (i32.const 0) " + missing, "remove_keys_glob": "(i32.const 1) " + label + " " + missing,
		"log": "(i32.const 1) " + ip, "warn": ip, "skip": ip, "fail": ip, "remap_ip": ip + " " + room,
	},
	moduleExtism: {
		"alloc": "(i64.const 10)", "free": aBlock, "length": aBlock, "length_unsafe": aBlock, "load_u8": aBlock, "load_u64": aBlock, "store_u8": aBlock + " (i32.const 7)", "store_u64": aBlock + " (i64.const 7)",
		"input_length": "", "input_load_u8": "(i64.const 0)", "input_load_u64": "(i64.const 0)", "output_set": aBlock + " (i64.const 0)", "error_set": "(i64.const 0)",
		"config_get": aBlock, "var_get": aBlock, "var_set": aBlock + " " + aBlock,
		"log_trace": aBlock, "log_debug": aBlock, "log_info": aBlock, "log_warn": aBlock, "log_error": aBlock, "get_log_level": "",
		"http_request": aBlock + " " + aBlock, "http_status_code": "", "http_headers": "",
	},
	moduleWASI: {
		"proc_exit": "(i32.const 0)", "args_get": "(i32.const 1024) (i32.const 1028)", "environ_get": "(i32.const 1024) (i32.const 1028)", "args_sizes_get": "(i32.const 1024) (i32.const 1028)",
		"environ_sizes_get": "(i32.const 1024) (i32.const 1028)", "sched_yield": "", "clock_res_get": "(i32.const 0) (i32.const 1024)", "clock_time_get": "(i32.const 0) (i64.const 0) (i32.const 1024)",
		"random_get": "(i32.const 1024) (i32.const 32)", "fd_write": "(i32.const 1) (i32.const 2048) (i32.const 1) (i32.const 1024)", "fd_fdstat_get": "(i32.const 1) (i32.const 1024)",
		"poll_oneoff": "(i32.const 2048) (i32.const 1024) (i32.const 1) (i32.const 1064)",
	},
}

// argumentsFor returns the arguments for a host function. WASI functions that the host does not support get zeros.
func argumentsFor(t *testing.T, module, name string, f api.FunctionDefinition) string {
	t.Helper()
	arguments, ok := observed[module][name]
	if !ok && module == moduleWASI {
		for _, p := range f.ParamTypes() {
			arguments += map[byte]string{i32: " (i32.const 0)", i64: " (i64.const 0)"}[p]
		}
		return arguments
	}
	if !ok {
		t.Fatalf("%s.%s: there is no case: add its arguments to observed, so that what it returns is known to be the same in each domain", module, name)
	}
	return arguments
}

// observe returns the observer of a host function, for the native or the portable tier.
func observe(t *testing.T, module, name string, f api.FunctionDefinition, portable bool) []byte {
	t.Helper()
	own, fields := []string{"string", "set_string"}, nativeObserver
	from, functions := moduleRefract, hostFunctions()[moduleRefract]
	if portable {
		own, fields, from, functions = []string{"input_load_u8", "alloc", "store_u8", "output_set"}, portableObserver, moduleExtism, hostFunctions()[moduleExtism]
	}
	var imports strings.Builder
	for _, import_ := range own {
		fmt.Fprintf(&imports, "(import %q %q (func $the_%s%s))\n", from, import_, import_, signatureText(functions[import_]))
	}
	fmt.Fprintf(&imports, "(import %q %q (func $function%s))\n", module, name, signatureText(f))
	fmt.Fprintf(&imports, "(import %q \"alloc\" (func $new%s))\n", moduleExtism, signatureText(hostFunctions()[moduleExtism]["alloc"]))
	fmt.Fprintf(&imports, "(import %q \"get\" (func $the_get%s))\n", moduleRefract, signatureText(hostFunctions()[moduleRefract]["get"]))
	call := "(call $function " + argumentsFor(t, module, name, f) + ")"
	switch {
	case len(f.ResultTypes()) == 0:
		call += " (i64.const 0)"
	case f.ResultTypes()[0] == i32:
		call = "(i64.extend_i32_u " + call + ")"
	case f.ResultTypes()[0] == f64:
		call = "(i64.reinterpret_f64 " + call + ")"
	}
	body := "(func $new_block (result i64) (call $new (i64.const 8))) (func $call (result i64) " + call + ")" + fields[:len(fields)-1]
	source := fmt.Sprintf("(module %s (memory (export \"memory\") 1) %s)", imports.String(), body)
	if !portable {
		source = wattest.Plugin(`{"name":"observer","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["*"],"capabilities":["skip"]}`, imports.String(), body)
	}
	wasm, err := wattest.Assemble(source)
	require.NoError(t, err, source)
	return wasm
}

// histories are earlier calls of an instance: lists of the traces to leave, one entry for each object of another
// domain.
var histories = [][]string{{}, {""}, {"c"}, {"c", "c"}, {"ccc"}, {"g"}, {"c", "g"}, {"gc", "c"}, {"f"}, {"cf", "c"}, {"t"}, {"c", "t"}, strings.Split(strings.Repeat("c ", 40), " ")}

// outcome runs an object of the domain "bank" without traces, and returns everything that users or the plugin can
// observe.
func outcome(t *testing.T, chain *Chain, doc *document.Document, env *Env) string {
	t.Helper()
	env.Domain = "bank"
	doc.Reset(map[string]any{"metadata": map[string]any{"labels": map[string]any{}}, "list": []any{"a", "b", "c"}})
	out, err := chain.Run(context.Background(), doc, env)
	if err != nil {
		return "error: " + err.Error()
	}
	v, _ := doc.Root().At("metadata.labels.seen")
	seen, _ := v.Text()
	return fmt.Sprintf("label %q, skipped %t %q, %d warnings, %d fuel", strings.Clone(seen), out.Skipped, out.SkipReason, len(out.Warnings), out.Calls[0].Fuel)
}

// afterHistory loads the module, runs the history in the domain "shop", and returns the outcome in the domain "bank".
// As in the virtual kubelet, the document and the Env are reused.
func afterHistory(t *testing.T, h *Host, module []byte, config PluginConfig, history []string) string {
	t.Helper()
	p := mustLoad(t, h, "observer", module, config)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	doc, env := document.New(), &Env{Measure: true, Logger: slog.New(slog.DiscardHandler), RemapIP: func(string) (string, bool) { return "10.9.9.9", true }}
	for _, traces := range history {
		env.Domain = "shop"
		doc.Reset(map[string]any{"metadata": map[string]any{"labels": map[string]any{"do": traces}}, "list": []any{"a", "b", "c"}})
		// The errors are ignored, because some of these calls are meant to fail.
		_, _ = chain.Run(context.Background(), doc, env)
	}
	return outcome(t, chain, doc, env)
}

// TestEveryValueThatAGuestReadsIsTheSameInEachDomain checks that a guest reads the same values from each host
// function, regardless of its earlier calls in another domain: handles, addresses, lengths, error codes, random
// numbers, clocks, the remaining fuel, and whether its instance is new. If a host function is added, this test needs
// a case for it.
func TestEveryValueThatAGuestReadsIsTheSameInEachDomain(t *testing.T) {
	short.NeedTime(t, "a module for every function of the host")
	h := newHost(t)
	for module, functions := range hostFunctions() {
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			for _, portable := range []bool{false, true} {
				config := PluginConfig{}
				if portable {
					config = PluginConfig{Kinds: []string{"*"}, Writes: []string{"*"}, Capabilities: []string{CapabilitySkip}}
				}
				t.Run(fmt.Sprintf("%s.%s portable=%t", module, name, portable), func(t *testing.T) {
					code := observe(t, module, name, functions[name], portable)
					clean := afterHistory(t, h, code, config, nil)
					for _, history := range histories {
						if got := afterHistory(t, h, code, config, history); got != clean {
							t.Errorf("after %q: %s, otherwise %s", history, got, clean)
						}
					}
				})
			}
		}
	}
}
