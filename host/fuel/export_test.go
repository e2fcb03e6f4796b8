// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// InstrumentExactly charges each piece of straight code separately, so that the fuel used is the cost of the executed
// instructions.
func InstrumentExactly(wasm []byte, opts Options) ([]byte, error) {
	return instrumentModule(wasm, opts, -1, 0)
}
