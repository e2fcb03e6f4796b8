// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// InstrumentExactly does the same as Instrument, but charges for each piece of code without branches separately, so
// that the used fuel equals the cost of the executed instructions.
func InstrumentExactly(wasm []byte, opts Options) ([]byte, error) {
	return instrumentModule(wasm, opts, -1, 0)
}
