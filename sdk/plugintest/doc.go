// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugintest tests a plugin on the real host, without a cluster.
//
// A test needs only one line. Its cases are folders with YAML files:
//
//	func TestPlugin(t *testing.T) {
//		plugintest.Run(t, "my-plugin.wasm", "testdata", plugintest.Native(plugin))
//	}
//
// A case is a folder below testdata:
//
//	in.yaml        the object
//	context.yaml   the context of the hook (optional); its
//	               entry "hook" is outgoing (the default) or incoming
//	config.yaml    the plugin's configuration (optional)
//	remap.yaml     addresses and their translations (optional).
//	               Without the file, addresses stay unchanged; with it, an address
//	               that is not listed has no translation.
//
// The expected result is in one of these files:
//
//	out.yaml       the mutated object
//	skip.txt       the reason why the object is not reflected
//	error.txt      a text that the error must contain
//
// Warnings are in warnings.txt, one per line. `go test -update` writes these files. Review them before you commit them.
// Faults of the plugin, such as traps, are never written as expected results. If all cases end with a fault, no files
// are written.
//
// For each case, the test also checks that the hook does not modify its input, that it changes nothing if it runs again
// on its own result, and, if Native is used, that both builds give the same result. With `go test -v`, the used fuel
// and memory are logged.
//
// [Property] and [Fuzz] generate thousands of objects from the cases, and add fields that the plugin does not know.
// They run the same checks for each object.
package plugintest
