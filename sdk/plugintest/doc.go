// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugintest tests a plugin on the real host, without a cluster.
//
// A test is one line; its cases are folders of YAML files next to it:
//
//	func TestPlugin(t *testing.T) {
//		plugintest.Run(t, "my-plugin.wasm", "testdata", plugintest.Native(plugin))
//	}
//
// A case is a folder below testdata:
//
//	in.yaml        the object that crosses
//	context.yaml   the plugin's view of the two clusters (optional); its
//	               entry "hook" is outgoing (the default) or incoming
//	config.yaml    the plugin's configuration (optional)
//	remap.yaml     addresses and their translations (optional).
//	               Without it every address stays as it is; with it an address
//	               that is not listed has no counterpart.
//
// and the expected result is one of
//
//	out.yaml       the object on the other side
//	skip.txt       the reason why it is not reflected
//	error.txt      a text that the error contains
//
// together with warnings.txt, one warning per line, if there are any.
// `go test -update` writes these files; review them before you commit them. It
// never writes a fault of the plugin, such as a trap, and writes nothing if the
// plugin neither changes, skips nor refuses the object of any case.
//
// Each case checks more than its golden file: that the hook does not
// modify its input, that running it again on its result changes nothing,
// and, given the plugin of the native build, that both builds agree. The
// fuel and the memory that the call used are logged (`go test -v`).
//
// [Property] and [Fuzz] generate thousands of objects from the cases, with
// fields that are unknown to the plugin, and run the same checks on each.
package plugintest
