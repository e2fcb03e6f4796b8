// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// A plugin that records every value that it reads. A test runs it compiled by TinyGo on the real host, and in the
// native build. Both must record the same values. The plugin calls the functions of the SDK that no default plugin
// uses.
package main

import "github.com/refract-project/refract/sdk"

var plugin = sdk.Register(sdk.Manifest{
	Name:    "inventory",
	Version: "1.0.0",
	Kinds:   []string{"*"},
	Writes:  []string{"seen"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(ctx sdk.Context, object sdk.Object) error {
	seen := object.SetMap("seen")
	names(ctx, object, seen.SetMap("names"))
	stringMap(object.Labels(), seen.SetMap("labels"))
	stringMap(object.Annotations(), seen.SetMap("annotations"))
	stringMap(ctx.Config().Strings("colours"), seen.SetMap("colours"))
	scalars(object, seen.SetMap("scalars"))
	iterators(object, seen)
	return nil
}

func names(ctx sdk.Context, object sdk.Object, into sdk.Node) {
	into.SetString("object", sdk.Concat(object.APIVersion(), "/", object.Kind(), "/", object.Namespace(), "/", object.Name()))
	into.SetString("namespaces", sdk.Concat(ctx.LocalNamespace(), "/", ctx.RemoteNamespace()))
	into.SetString("node", ctx.NodeName())
	into.SetString("ingressClass", ctx.IngressClass())
}

// stringMap records the entries of a map. It also reads the keys "app" and "odd]key" individually.
func stringMap(from sdk.StringMap, into sdk.Node) {
	into.SetInt("length", int64(from.Len()))
	into.SetBool("has", from.Has("app"))
	into.SetBool("is", from.Is("app", "web"))
	if value, ok := from.Lookup("odd]key"); ok {
		into.SetString("odd", value)
	}
	all := into.SetMap("all")
	for key, value := range from.All() {
		all.SetString(sdk.Key(key), value)
	}
	for key := range from.All() {
		into.SetString("first", key)
		break
	}
}

func scalars(object sdk.Object, into sdk.Node) {
	into.SetFloat("half", object.Float("spec.ratio", 1)/2)
	into.SetBool("bool", object.Bool("spec.paused", false))
	into.SetBool("fallback", object.Bool("spec.none", true))
	into.SetBool("null", object.Bool("spec.nothing", true))
}

func iterators(object sdk.Object, seen sdk.Node) {
	kinds := seen.SetMap("kinds")
	for key, entry := range object.Get("spec").Entries() {
		kinds.SetString(sdk.Key(key), entry.Kind("").String())
	}
	for key := range object.Get("spec").Entries() {
		seen.SetString("firstKey", key)
		break
	}
	ports := seen.SetList("ports")
	for i, port := range object.Get("spec.ports").Elements() {
		if i == 2 {
			break
		}
		ports.SetString("-", port.String("name"))
	}
}
