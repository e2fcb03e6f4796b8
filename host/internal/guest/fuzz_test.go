// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
)

// FuzzABI checks that if a guest calls functions in any order with any arguments, only errors of this package occur
// as panics, the cached object does not change, and the next call works.
func FuzzABI(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x10\x11\x12"))
	f.Add([]byte("get metadata.labels then set it, copy it, remove it"))
	f.Add(slices.Repeat([]byte{13, 1, 3, 2, 9}, 20))
	object, pristine := fuzzedObject(), fuzzedObject()
	d := newDriver(f, object, nil, Limits{OutputBytes: 1 << 14, Handles: 1 << 10, Fuel: 1 << 20})
	type named struct {
		name string
		f    hostFunction
	}
	var functions []named
	for _, module := range []string{moduleRefract, moduleExtism, moduleWASI} {
		for _, name := range slices.Sorted(maps.Keys(d.im[module])) {
			if name != "proc_exit" {
				functions = append(functions, named{module + "." + name, d.im[module][name]})
			}
		}
	}
	texts := []string{"", "spec", "metadata.labels", "spec.ports.-", "spec.ports[0]", "spec.ports.*.nodePort", "a.b.c", "[x]]y]",
		"*", "spec\nstatus", "vendor*\n?", `{"a":[1,2,{"b":null}]}`, "\xff", "10.0.0.1", "-", "0"}
	f.Fuzz(func(t *testing.T, data []byte) {
		d.doc.Reset(object)
		d.call()
		handles := []uint64{0, 1, 2, 3}
		for steps := 0; len(data) > 2 && steps < 200; steps++ {
			fn := functions[int(data[0])%len(functions)]
			var stack []uint64
			stack, data = fuzzArguments(d, fn.f, data[1:], handles, texts)
			result, err := d.raw(fn.f, stack)
			if err != nil {
				checkTyped(t, fn.name, err)
				// The run ends here, because the host would discard the instance after this error.
				break
			}
			if h := result; h > 3 && h&generationMask == d.i.generation {
				handles = append(handles, h)
			}
		}
		d.doc.Value()
		d.doc.Hash()
		if !reflect.DeepEqual(object, pristine) {
			t.Fatal("the object in the cache was modified")
		}
		d.doc.Restore()
		d.call()
		if _, err := d.do(moduleRefract, "kind", 1, "spec"); err != nil {
			t.Fatalf("the next call: %v", err)
		}
	})
}

func fuzzedObject() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "frontend", "labels": map[string]any{"app": "shop", "vendor.example.com/cost": "7"}},
		"spec": map[string]any{
			"type": "LoadBalancer", "clusterIPs": []any{"10.96.4.2"},
			"ports": []any{
				map[string]any{"name": "http", "port": int64(80), "nodePort": int64(30080)},
				map[string]any{"name": "https", "port": int64(443), "nodePort": int64(30443)},
			},
		},
		"status": map[string]any{"loadBalancer": map[string]any{}},
	}
}

// fuzzArguments returns mostly plausible arguments, such as known handles and existing texts, and some arbitrary
// numbers.
func fuzzArguments(d *driver, f hostFunction, data []byte, handles []uint64, texts []string) ([]uint64, []byte) {
	var stack []uint64
	d.at = 0
	for range f.params {
		if len(data) == 0 {
			stack = append(stack, 0)
			continue
		}
		b := data[0]
		data = data[1:]
		switch {
		case b < 80:
			stack = append(stack, handles[int(b)%len(handles)])
		case b < 200 && len(stack)+2 <= len(f.params):
			stack = append(stack, d.arg(texts[int(b)%len(texts)])...)
		case b < 230:
			stack = append(stack, uint64(b)*37)
		default:
			var word [8]byte
			n := copy(word[:], data)
			data = data[n:]
			stack = append(stack, binary.LittleEndian.Uint64(word[:]))
		}
	}
	return stack[:min(len(stack), len(f.params))], data
}

func checkTyped(t *testing.T, what string, err error) {
	t.Helper()
	var access *AccessError
	var limit *LimitError
	var fuel *OutOfFuelError
	var failed *PluginFailedError
	var trap *TrapError
	if !errors.As(err, &access) && !errors.As(err, &limit) && !errors.As(err, &fuel) && !errors.As(err, &failed) && !errors.As(err, &trap) {
		t.Fatalf("%s: %T %v is none of the package's errors", what, err, err)
	}
}
