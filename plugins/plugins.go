// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugins embeds the default plugins, the modules that mutate an object of a kind when no other plugin is
// configured. Each has its own folder with the source, its test, and the compiled module, which `make plugins`
// rebuilds and continuous integration compares. The comment in its main.go documents how it mutates each field.
//
// They have no privileges: a user's plugin can do the same, and replace them.
package plugins

import (
	"embed"
	"fmt"
	"strings"
)

// FS holds the default modules as <name>/<name>.wasm.
//
//go:embed configmap/configmap.wasm endpointslice/endpointslice.wasm event/event.wasm generic/generic.wasm ingress/ingress.wasm
//go:embed networkpolicy/networkpolicy.wasm persistentvolumeclaim/persistentvolumeclaim.wasm pod/pod.wasm
//go:embed poddisruptionbudget/poddisruptionbudget.wasm secret/secret.wasm service/service.wasm
var FS embed.FS

// group returns the API group of the kind that a default plugin supports.
func group(name string) string {
	switch name {
	case "endpointslice":
		return "discovery.k8s.io"
	case "ingress", "networkpolicy":
		return "networking.k8s.io"
	case "poddisruptionbudget":
		return "policy"
	}
	return "" // the core group
}

// generic is the name of the default plugin for all other kinds.
const generic = "generic"

// Default returns the name and the module of the default plugin for
// a kind: "Pod", or "EndpointSlice.discovery.k8s.io", whose group
// may be omitted. A kind without its own default plugin, such as a
// kind of the same name in another group, has the generic one.
func Default(kind string) (name string, module []byte) {
	kind, of, grouped := strings.Cut(kind, ".")
	name = strings.ToLower(kind)
	module, err := FS.ReadFile(fmt.Sprintf("%s/%s.wasm", name, name))
	if err != nil || grouped && of != group(name) {
		name = generic
		module, _ = FS.ReadFile(fmt.Sprintf("%s/%s.wasm", name, name)) // it is embedded
	}
	return name, module
}
