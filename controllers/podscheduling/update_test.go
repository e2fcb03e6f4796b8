// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestUpdates checks that an update changes nothing except for restoring the webhook's toleration. This must also hold
// for updates that the webhook configuration does not select.
func TestUpdates(t *testing.T) {
	const (
		ours    = `{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoExecute"}`
		limited = `{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}`
		other   = `{"key":"team","operator":"Exists"}`
	)
	webhook := NewWebhook(nil, nil, Options{}) // the webhook reads no NamespaceOffloading for an update
	for _, c := range []struct {
		name, before, now string
		isRestored        bool
	}{
		{"the toleration is dropped", ours + "," + other, other, true},
		{"all tolerations are dropped", ours, "", true},
		{"it is kept", ours, ours + "," + other, false},
		{"the pod never had it", other, "", false},
		{"a limited one of the user", limited, limited + "," + other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := func(tolerations string) runtime.RawExtension {
				return runtime.RawExtension{Raw: []byte(`{"spec":{"tolerations":[` + tolerations + `]}}`)}
			}
			response := webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Object: raw(c.now), OldObject: raw(c.before),
			}})
			assert.True(t, response.Allowed)
			assert.Equal(t, c.isRestored, len(response.Patch) > 0, "%s", response.Patch)
		})
	}
}
