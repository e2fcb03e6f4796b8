// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	corev1 "k8s.io/api/core/v1"
)

// requested returns a request from rome's user for a pod with the given CPU. If before is set, the request is an update
// from that CPU value.
func requested(t *testing.T, cpu, before string) admission.Request {
	t.Helper()
	encoded := func(cpu string) runtime.RawExtension {
		pod := sized("web", "rome", cpu)
		text, err := json.Marshal(&offloading.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: pod.Labels}, Spec: offloading.ShadowPodSpec{Pod: *pod.Spec}})
		require.NoError(t, err)
		return runtime.RawExtension{Raw: text}
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "shop", Name: "web", Object: encoded(cpu),
		UserInfo: authenticationv1.UserInfo{Username: "rome", Groups: []string{"rome"}}}}
	if before != "" {
		request.Operation, request.OldObject = admissionv1.Update, encoded(before)
	}
	return request
}

// Responses to unidentified clients do not contain the resource usage of a consumer. For a new pod, the controller
// reports the usage on the ShadowPod.
func TestAnswersToStrangers(t *testing.T) {
	cordoned := quotaFor("rome", "2")
	cordoned.Spec.Cordoned = new(bool)
	*cordoned.Spec.Cordoned = true
	used := []corev1.Pod{*podOf(sized("other", "rome", "1700m"), "1")}
	for _, tc := range []struct {
		quota       offloading.Quota
		identified  bool
		cpu, before string
		allowed     bool
		says        string
	}{
		{quotaFor("rome", "2"), true, "300m", "", true, ""},
		{quotaFor("rome", "2"), true, "400m", "", false, "cpu: requested 400m, used 1700m, limited 2"},
		{quotaFor("rome", "2"), true, "400m", "100m", false, "cpu: requested 400m, used 1700m, limited 2"},
		{quotaFor("rome", "2"), false, "400m", "", true, ""},
		{quotaFor("rome", "2"), false, "400m", "100m", false, "exceeds the Quota of user rome: cpu"},
		{quotaFor("rome", "2"), false, "100m", "400m", true, ""},
		{cordoned, false, "1m", "", false, "the Quota is cordoned"},
	} {
		ledger := NewLedger(&shelf{quotas: []offloading.Quota{tc.quota}, pods: used}, Options{})
		response := NewWebhook(ledger, tc.identified).Handle(t.Context(), requested(t, tc.cpu, tc.before))
		said := ""
		if response.Result != nil {
			said = response.Result.Message
		}
		if response.Allowed != tc.allowed || !strings.Contains(said, tc.says) {
			t.Errorf("identified %t, %s instead of %q: allowed %t, %q", tc.identified, tc.cpu, tc.before, response.Allowed, said)
		}
		if !tc.identified && (strings.Contains(said, "1700m") || strings.Contains(said, "limited")) {
			t.Errorf("a stranger learns %q", said)
		}
	}
}
