// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExtismMemory(t *testing.T) {
	d := newDriver(t, map[string]any{}, map[string]any{"name": "value", "n": int64(3)}, Limits{})
	do := func(name string, args ...any) uint64 {
		t.Helper()
		got, err := d.do(moduleExtism, name, args...)
		require.NoErrorf(t, err, "%s%v", name, args)
		return got
	}
	text := func(s string) uint64 {
		at := do("alloc", len(s))
		for i := range len(s) {
			do("store_u8", at+uint64(i), int(s[i]))
		}
		return at
	}
	if at := do("config_get", text("name")); do("length", at) != 5 || do("load_u8", at) != 'v' {
		t.Error("configuration is not value")
	}
	if at := do("config_get", text("n")); do("length_unsafe", at) != 1 || do("load_u8", at) != '3' {
		t.Error("configuration is not 3")
	}
	if do("config_get", text("none")) != 0 || do("var_get", text("none")) != 0 || do("length", 12345) != 0 {
		t.Error("something is there that is not")
	}
	do("var_set", text("k"), text("kept"))
	if at := do("var_get", text("k")); do("length", at) != 4 {
		t.Error("the variable is lost")
	}
	do("var_set", text("k"), 0)
	if do("var_get", text("k")) != 0 {
		t.Error("the variable is still there")
	}
	at := do("alloc", 8)
	do("store_u64", at, uint64(0x1122334455667788))
	if do("load_u64", at) != 0x1122334455667788 || do("load_u8", at) != 0x88 {
		t.Error("memory is not little-endian")
	}
	do("log_info", text("hello"))
	do("free", at)
	for name, args := range map[string][]any{
		"load_u8": {1 << 40}, "load_u64": {uint64(0xFFFFFFFFFFFFFFFF)}, "store_u8": {1 << 40, 1}, "store_u64": {uint64(0xFFFFFFFFFFFFFFFA), 1},
		"input_load_u8": {0}, "input_load_u64": {0}, "output_set": {8, uint64(0xFFFFFFFFFFFFFFFF)}, "error_set": {9},
		"config_get": {7}, "var_get": {7}, "var_set": {7, 7}, "log_warn": {7}, "http_request": {0, 0},
	} {
		_, err := d.do(moduleExtism, name, args...)
		var access *AccessError
		if !errors.As(err, &access) || access.Function != name {
			t.Errorf("%s%v: %v", name, args, err)
		}
	}
	var limit *LimitError
	if _, err := d.do(moduleExtism, "alloc", uint64(1<<62)); !errors.As(err, &limit) {
		t.Errorf("alloc: %v", err)
	}
}
