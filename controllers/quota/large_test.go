// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/refract-project/refract/controllers/internal/ledger"
)

func TestALargeShadowPodIsNotDecoded(t *testing.T) {
	shadow := func(metadata string, env int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"a","labels":{"liqo.io/creator-user":"rome"}%s},"spec":{"pod":{"containers":[{"name":"main","env":[%s{"name":"A"}]}]}}}`,
			metadata, strings.Repeat(`{"name":"A"},`, env))
	}
	large, small := shadow("", 100_000), shadow("", 1)
	webhook := NewWebhook(ledger.New(nil, ledger.Options{Off: true}), true)
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

// TestALargeCreationIsRefusedAsAnUpdate checks that the creation of a 1.24 MiB ShadowPod is refused after only the
// beginning of the review was read. The message must be the same as for an update, whose review is decoded completely.
func TestALargeCreationIsRefusedAsAnUpdate(t *testing.T) {
	webhook := NewWebhook(ledger.New(nil, ledger.Options{Off: true}), true)
	for operation, text := range largeReviews(t) {
		answer := &admissionv1.AdmissionReview{}
		require.NoError(t, json.Unmarshal(serve(webhook.handler(), text).Bytes(), answer))
		assert.False(t, answer.Response.Allowed, operation)
		assert.Equal(t, "a ShadowPod of this size is not allowed here: it has more than 524288 bytes; reduce it, for example by moving values of env into a ConfigMap", answer.Response.Result.Message, operation)
	}
}

// BenchmarkLargeReviews compares the review of a creation, which is refused after its beginning was read, with the
// review of an update, which is decoded completely.
func BenchmarkLargeReviews(b *testing.B) {
	webhook := NewWebhook(ledger.New(nil, ledger.Options{Off: true}), true)
	handler := webhook.handler()
	for operation, text := range largeReviews(b) {
		b.Run(string(operation), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if serve(handler, text).Len() == 0 {
					b.Fatal("no response")
				}
			}
		})
	}
}

// largeReviews returns reviews of a ShadowPod of 1.24 MiB with 100,000 variables.
func largeReviews(t testing.TB) map[admissionv1.Operation]string {
	t.Helper()
	object := kruntime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"name":"a"},"spec":{"pod":{"containers":[{"name":"main","env":[%s{"name":"A"}]}]}}}`, strings.Repeat(`{"name":"A"},`, 100_000))}
	texts := map[admissionv1.Operation]string{}
	for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "1", Operation: operation, Object: object}}
		review.APIVersion, review.Kind = admissionv1.SchemeGroupVersion.String(), "AdmissionReview"
		text, err := json.Marshal(review)
		require.NoError(t, err)
		texts[operation] = string(text)
	}
	return texts
}

func serve(handler http.Handler, text string) *bytes.Buffer {
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Body
}
