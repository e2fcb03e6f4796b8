// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/json"
)

// isPatch reports whether an output of the portable tier is a JSON Patch, which is a list and not an object.
func isPatch(output []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(output, " \t\r\n"), []byte("["))
}

// takePatch applies the operations of a JSON Patch to the object. After an error, the caller must drop all edits.
func (i *Instance) takePatch(text []byte) error {
	var operations []any
	repeated, err := json.UnmarshalStrict(text, &operations, json.DisallowDuplicateFields)
	if len(repeated) > 0 {
		err = repeated[0]
	}
	if err != nil {
		return i.badOutput("decoding its JSON Patch, " + i.printableCopy(err.Error()))
	}
	for n, operation := range operations {
		err := i.doc.Patch(operation)
		if i.owed += hostPrice * i.doc.TakeWork(); i.owed > i.fuelLeft() {
			return &OutOfFuelError{Plugin: i.module.Name, During: i.during, Fuel: i.budget}
		}
		if i.isLate() {
			return i.lateError()
		}
		if err != nil {
			return i.classifyError(i.documentError("output_set", fmt.Errorf("operation %d of its JSON Patch: %w", n, err)))
		}
	}
	return nil
}
