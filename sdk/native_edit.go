// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	kjson "sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
)

func (h handle) setString(path, s string) {
	checkAccess("set_string", path, h.n.SetString(path, s))
}

func (h handle) setInt(path string, i int64) { checkAccess("set_int", path, h.n.SetInt(path, i)) }

func (h handle) setFloat(path string, f float64) {
	checkAccess("set_float", path, h.n.SetFloat(path, f))
}

func (h handle) setBool(path string, b bool) { checkAccess("set_bool", path, h.n.SetBool(path, b)) }

func (h handle) setNull(path string) { checkAccess("set_null", path, h.n.SetNull(path)) }

func (h handle) setMap(path string) handle { return h.made("set_map", path, document.Node.SetMap) }

func (h handle) setList(path string) handle { return h.made("set_list", path, document.Node.SetList) }

func (h handle) ensureMap(path string) handle {
	return h.made("ensure_map", path, document.Node.EnsureMap)
}

// made calls set, which creates a node in the document, and returns the handle of this node.
func (h handle) made(function, path string, set func(document.Node, string) (document.Node, error)) handle {
	n, err := set(h.n, path)
	checkAccess(function, path, err)
	return handle{h.s, n}
}

// setJSON decodes JSON in the same way as the host: whole numbers become int64.
func (h handle) setJSON(path string, text []byte) {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &v); err != nil {
		panic(&AccessError{"set_json", path, "decoding the JSON, " + err.Error()})
	}
	checkAccess("set_json", path, h.n.Assign(path, v))
}

func (h handle) copy(path string, source handle) {
	checkAccess("copy", path, h.n.Copy(path, source.n.View()))
}

func (h handle) remove(paths string) int {
	removed, err := h.n.Remove(paths)
	checkAccess("remove", paths, err)
	return removed
}

func (h handle) removeElem(i int) { checkAccess("remove_elem", "", h.n.RemoveElem(i)) }

func (h handle) removeKeys(paths string, from handle, lists string) int {
	removed, err := h.n.RemoveKeysListed(paths, from.n, lists, systemPrefix)
	checkAccess("remove_keys", paths, err)
	return removed
}

func (h handle) removeGlob(path, globs string) int {
	removed, err := h.n.RemoveKeysGlob(path, globs, systemPrefix)
	checkAccess("remove_keys_glob", path, err)
	return removed
}

// systemPrefix is the prefix of the labels and annotations that identify the owner of a copy. Globs do not match
// them.
const systemPrefix = "offloading.liqo.io/"
