// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugintest tests a plugin on the real host, without a cluster.
//
// A test is one line. Its cases are folders with YAML files:
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
// Warnings are in warnings.txt, one per line. `go test -update` writes these files. Review them before you commit
// them. Faults of the plugin, such as a trap, are never written as expected results. If every case ends with a fault,
// no files are written.
//
// Each case also checks that the hook does not modify its input, that the hook changes nothing if it runs again on
// its result, and, if Native is used, that both builds have the same result. The used fuel and memory are logged (`go
// test -v`).
//
// [Property] and [Fuzz] generate thousands of objects from the cases, with fields that the plugin does not know, and
// run the same checks for each of them.
package plugintest
