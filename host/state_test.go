// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/wattest"
)

// hoarders are modules that keep text from one object to the next, each in a different kind of state. A module stores
// the label "secret" of each object in its state, and writes the stored text of an earlier object to the label "leak"
// of the next object. slot is one byte of the stored text, or 0 if nothing is stored.
var hoarders = map[string]string{
	"memory": `
	  (func $keep (param i32) (i32.store8 (i32.const 60000) (local.get 0)))
	  (func $kept (result i32) (i32.load8_u (i32.const 60000)))`,
	"global": `
	  (global $kept (mut i32) (i32.const 0))
	  (func $keep (param i32) (global.set $kept (local.get 0)))
	  (func $kept (result i32) (global.get $kept))`,
	"memory size": `
	  (func $keep (param i32) (drop (memory.grow (local.get 0))))
	  (func $kept (result i32) (i32.sub (memory.size) (i32.const 1)))`,
	"table": `
	  (table $t 256 funcref) (func $f) (elem (i32.const 0) $f)
	  (func $keep (param i32) (table.set (local.get 0) (table.get (i32.const 0))))
	  (func $kept (result i32) (local $i i32)
	    (local.set $i (i32.const 255))
	    (block $done (loop $more
	      (br_if $done (i32.eqz (local.get $i)))
	      (br_if $done (i32.eqz (ref.is_null (table.get (local.get $i)))))
	      (local.set $i (i32.sub (local.get $i) (i32.const 1)))
	      (br $more)))
	    (local.get $i))`,
	"table size": `
	  (table $t 1 funcref)
	  (func $keep (param i32) (drop (table.grow (ref.null func) (local.get 0))))
	  (func $kept (result i32) (i32.sub (table.size) (i32.const 1)))`,
	"random source": `
	  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
	  (func $keep (param i32) (drop (call $random (i32.const 61000) (i32.shl (local.get 0) (i32.const 3)))))
	  (func $kept (result i32) (drop (call $random (i32.const 60000) (i32.const 8)))
	    (i32.or (i32.and (i32.load8_u (i32.const 60000)) (i32.const 127)) (i32.const 1)))`,
}

func hoarder(t *testing.T, place string) []byte {
	t.Helper()
	imports, body := "", hoarders[place]
	if place == "random source" {
		imports = `(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))`
		body = body[len("\n\t  ")+len(imports):]
	}
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"hoarder","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`,
		imports+`
		(import "refract" "string" (func $string (param i32 i32 i32 i32 i32) (result i32)))
		(import "refract" "set_string" (func $set (param i32 i32 i32 i32 i32)))`,
		`(data (i32.const 0) "metadata.labels.leak")
		(data (i32.const 32) "metadata.labels.secret")`+body+`
		(func (export "outgoing") (result i32)
		  (i32.store8 (i32.const 128) (call $kept))
		  (if (i32.load8_u (i32.const 128)) (then
		    (call $set (i32.const 1) (i32.const 0) (i32.const 20) (i32.const 128) (i32.const 1))))
		  (if (i32.eq (call $string (i32.const 1) (i32.const 32) (i32.const 22) (i32.const 64) (i32.const 8)) (i32.const 1)) (then
		    (call $keep (i32.load8_u (i32.const 64)))))
		  (i32.const 0))`))
	require.NoError(t, err)
	return wasm
}

// leak runs an object with a secret in the domain first and another object in the domain second, and returns the
// label "leak" of the other object.
func leak(t *testing.T, p *Plugin, first, second string) string {
	t.Helper()
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	cross := func(domain string, labels map[string]any) string {
		doc := document.New()
		doc.Reset(map[string]any{"metadata": map[string]any{"labels": labels}})
		_, err := chain.Run(context.Background(), doc, &Env{Domain: domain})
		require.NoError(t, err)
		v, _ := doc.Root().At("metadata.labels.leak")
		text, _ := v.Text()
		// The text is cloned, because it is in the memory of the document.
		return strings.Clone(text)
	}
	clean := cross("clean", map[string]any{})
	cross(first, map[string]any{"secret": "#"})
	got := cross(second, map[string]any{})
	if got == clean {
		return ""
	}
	return fmt.Sprintf("%q instead of %q", got, clean)
}

// TestNothingIsRememberedAcrossDomains checks a module that stores everything it sees: nothing must be left when the
// next object belongs to another namespace, or when the last object was a Secret.
func TestNothingIsRememberedAcrossDomains(t *testing.T) {
	h := newHost(t)
	for place := range hoarders {
		t.Run(place, func(t *testing.T) {
			p := mustLoad(t, h, "hoarder", hoarder(t, place), PluginConfig{})
			for range 3 {
				for _, domains := range [][2]string{{"shop", "bank"}, {"bank/secret", "bank"}, {"", ""}} {
					if got := leak(t, p, domains[0], domains[1]); got != "" {
						t.Errorf("%q reads what %q left: %s", domains[1], domains[0], got)
					}
				}
				// Within a domain, the module must remember the text. If it did not, the test could not fail.
				if leak(t, p, "shop", "shop") == "" {
					t.Error("the module keeps nothing")
				}
			}
			fresh := mustLoad(t, h, "hoarder", hoarder(t, place), PluginConfig{Fresh: true})
			if got := leak(t, fresh, "shop", "shop"); got != "" {
				t.Errorf("with a clean slate: %s", got)
			}
		})
	}
}

// TestDefaultPluginsArePutBack checks that instances of modules that were built by TinyGo can be reset, so that no
// new instances are needed.
func TestDefaultPluginsArePutBack(t *testing.T) {
	for _, kind := range []string{"Pod", "Service", "Secret"} {
		p := mustLoad(t, newHost(t), kind, defaultModule(t, kind), PluginConfig{})
		i, err := p.takeInstance(context.Background(), "a")
		require.NoError(t, err)
		p.releaseInstance(i)
		j, err := p.takeInstance(context.Background(), "b")
		if err != nil || i != j {
			t.Errorf("%s: another instance, %v", kind, err)
		}
		p.releaseInstance(j)
	}
}
