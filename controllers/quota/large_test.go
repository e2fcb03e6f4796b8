// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestALargeShadowPodIsNotDecoded(t *testing.T) {
	shadow := func(metadata string, env int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"a","labels":{"liqo.io/creator-user":"rome"}%s},"spec":{"pod":{"containers":[{"name":"main","env":[%s{"name":"A"}]}]}}}`,
			metadata, strings.Repeat(`{"name":"A"},`, env))
	}
	large, small := shadow("", 100_000), shadow("", 1)
	webhook := NewWebhook(NewLedger(nil, Options{Off: true}), true)
	handle := func(operation admissionv1.Operation, object, old []byte) (response admission.Response, allocated uint64) {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation,
			Object: kruntime.RawExtension{Raw: object}, OldObject: kruntime.RawExtension{Raw: old}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		response = webhook.Handle(t.Context(), request)
		runtime.ReadMemStats(&after)
		return response, after.TotalAlloc - before.TotalAlloc
	}
	for name, tc := range map[string]struct {
		operation   admissionv1.Operation
		object, old []byte
		allowed     bool
	}{
		"new":                                 {admissionv1.Create, large, nil, false},
		"small before":                        {admissionv1.Update, large, small, false},
		"small again":                         {admissionv1.Update, small, large, true},
		"deleted, which loses its finalizers": {admissionv1.Update, shadow(`,"deletionTimestamp":"2026-01-01T00:00:00Z"`, 100_000), large, true},
		"small":                               {admissionv1.Create, small, nil, true},
	} {
		response, allocated := handle(tc.operation, tc.object, tc.old)
		assert.Equal(t, tc.allowed, response.Allowed, "%s: %v", name, response.Result)
		assert.Less(t, allocated, uint64(1<<20), "%s: bytes", name)
		if !tc.allowed {
			assert.Contains(t, response.Result.Message, "more than", name)
		}
	}
}
