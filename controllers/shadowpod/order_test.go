// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
)

// TestWhatALaterWebhookRequestsIsCompared checks that if a mutating webhook that is called after Refract's webhook
// raises the requests of a pod, the raised requests are compared with the Quota. The API server then calls Refract's
// webhook again, and the controller compares the stored ShadowPod, which has the raised requests.
func TestWhatALaterWebhookRequestsIsCompared(t *testing.T) {
	const name = "lucca"
	namespace, _ := limited(t, name, quantities("cpu", "2", "memory", "10Gi", "ephemeral-storage", "10Gi", "pods", "8"))
	peer := rbac.Peer("", name)
	require.NoError(t, provider.Grant(t.Context(), append(peer.Objects(), peer.RemoteNamespace(namespace))...))
	serveWebhook(t, name, namespace)
	raiseLater(t, namespace, "9")
	consumer := consumerClient(t, name)
	shadow := func() *unstructured.Unstructured {
		shadow := hungry(namespace, "web", amounts(100, 1, 1))
		shadow.SetLabels(map[string]string{wire.OriginLabel: name})
		return shadow
	}
	controllertest.Eventually(t, "the later webhook to be called", func() error {
		tried := shadow()
		if err := consumer.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if text := fmt.Sprint(tried.Object["spec"]); !strings.Contains(text, "cpu:9") {
			return fmt.Errorf("the spec is %s", text)
		}
		return nil
	})
	created := shadow()
	require.NoError(t, consumer.Create(t.Context(), created), "the amounts are only in the condition")
	awaitRefusal(t, created, "requested 9")

	provider.Patch(t, created, `{"metadata":{"annotations":{"raise":"no"}},"spec":{"pod":{"containers":[`+
		`{"name":"main","image":"a","resources":{"requests":{"cpu":"100m","memory":"1Mi"},"limits":{"cpu":"100m","memory":"1Mi"}}}]}}}`)
	awaitPod(t, created, "")
	controllertest.Eventually(t, "a change to be refused", func() error {
		provider.Get(t, created, namespace, created.GetName())
		created.SetAnnotations(nil)
		err := consumer.Update(t.Context(), created, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "exceeds the Quota") {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

// raiseLater registers a webhook that the API server calls after Refract's webhook. It sets the CPU request and limit
// of the ShadowPods in a namespace, except ShadowPods with an annotation.
func raiseLater(t *testing.T, namespace, cpu string) {
	t.Helper()
	patch := []byte(`[{"op":"replace","path":"/spec/pod/containers/0/resources/requests/cpu","value":"` + cpu + `"},
		{"op":"replace","path":"/spec/pod/containers/0/resources/limits/cpu","value":"` + cpu + `"}]`)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		text, err := io.ReadAll(r.Body)
		if assert.NoError(t, err) && assert.NoError(t, json.Unmarshal(text, review)) {
			kind := admissionv1.PatchTypeJSONPatch
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: &kind}
			review.Request = nil
			assert.NoError(t, json.NewEncoder(w).Encode(review))
		}
	}))
	t.Cleanup(server.Close)
	hook := quota.Configuration(admissionregistrationv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}, admissionregistrationv1.Fail)
	hook.Name = "raise.example.com"
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "raised", Expression: "!('raise' in object.metadata.?annotations.orValue({}))",
	}}
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	later := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-later-than-" + rbac.WebhookName}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook},
	}
	provider.Create(t, later)
	t.Cleanup(func() { assert.NoError(t, provider.Client.Delete(context.WithoutCancel(t.Context()), later)) })
}
