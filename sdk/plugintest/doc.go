// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugintest tests a plugin on the real host, without a cluster.
//
// A test is one line; the cases are folders of YAML beside it:
//
//	func TestPlugin(t *testing.T) {
//		plugintest.Run(t, "my-plugin.wasm", "testdata", plugintest.Native(plugin))
//	}
//
// A case is a folder below testdata:
//
//	in.yaml        the object that crosses
//	context.yaml   what the plugin may see of the two clusters (optional); its
//	               entry "hook" is outgoing (the default) or incoming
//	config.yaml    the plugin's configuration (optional)
//	remap.yaml     addresses and what they are on the other side (optional).
//	               Without it every address stays as it is; with it an address
//	               that is not listed has no counterpart.
//
// and what is expected is one of
//
//	out.yaml       the object on the other side
//	skip.txt       the reason why it is not reflected
//	error.txt      a text that the error contains
//
// together with warnings.txt, one a line, if there are any. `go test -update`
// writes them; what it wrote is to be read before it is committed. It
// never writes a fault of the plugin, such as a trap, and writes nothing if the
// plugin neither changes, skips nor refuses the object of any case.
//
// Each case checks more than its golden file: that the hook leaves its input
// alone, that running it again on its result changes nothing, and, given the
// plugin of the native build, that both builds do the same. The fuel and the
// memory that the call used are logged (`go test -v`).
//
// [Property] and [Fuzz] make thousands of objects out of the cases, with fields
// that the plugin has never heard of, and check the same on each.
package plugintest
