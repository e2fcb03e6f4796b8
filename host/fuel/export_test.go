// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// InstrumentExactly has a charge for each piece of straight code, so that the fuel taken is that of the instructions that ran.
func InstrumentExactly(wasm []byte, opts Options) ([]byte, error) {
	return instrument(wasm, opts, -1, 0)
}
