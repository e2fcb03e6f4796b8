// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugins embeds the default plugins. A default plugin mutates the objects of a kind unless another plugin
// replaces it. Each plugin has its own folder with the source, the test and the compiled module. `make plugins`
// rebuilds the modules, and continuous integration checks that they are up to date. The comment in main.go documents
// how the plugin mutates each field.
//
// Default plugins have no privileges: a user's plugin can make the same changes, and can replace a default plugin.
package plugins

import (
	"embed"
	"fmt"
	"strings"
)

// FS contains the default modules as <name>/<name>.wasm.
//
//go:embed configmap/configmap.wasm endpointslice/endpointslice.wasm event/event.wasm generic/generic.wasm ingress/ingress.wasm
//go:embed networkpolicy/networkpolicy.wasm persistentvolumeclaim/persistentvolumeclaim.wasm pod/pod.wasm
//go:embed poddisruptionbudget/poddisruptionbudget.wasm secret/secret.wasm service/service.wasm
var FS embed.FS

// group returns the API group of the kind that a default plugin mutates.
func group(name string) string {
	switch name {
	case "endpointslice":
		return "discovery.k8s.io"
	case "ingress", "networkpolicy":
		return "networking.k8s.io"
	case "poddisruptionbudget":
		return "policy"
	}
	return "" // an empty name means the core group
}

// generic is the name of the default plugin for kinds that have no default plugin of their own.
const generic = "generic"

// Default returns the name and the module of the default plugin for a kind, such as "Pod" or
// "EndpointSlice.discovery.k8s.io". The group may be omitted. Kinds without their own default plugin get the generic
// plugin. This includes kinds of other API groups that have the same name as a kind with its own plugin.
func Default(kind string) (name string, module []byte) {
	kind, of, grouped := strings.Cut(kind, ".")
	name = strings.ToLower(kind)
	module, err := FS.ReadFile(fmt.Sprintf("%s/%s.wasm", name, name))
	if err != nil || grouped && of != group(name) {
		name = generic
		// An embedded file can always be read.
		module, _ = FS.ReadFile(fmt.Sprintf("%s/%s.wasm", name, name))
	}
	return name, module
}
