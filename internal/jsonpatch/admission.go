// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package jsonpatch

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Admitted returns the response of a mutating webhook that admits an object with this patch.
func (p Patch) Admitted() admission.Response {
	response := admission.Allowed("")
	if len(p) == 0 {
		return response
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding patch, %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = raw, &kind
	return response
}
