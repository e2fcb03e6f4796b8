// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/ledger"
)

// podOfRome returns a pod that the user of the consumer rome has created.
func podOfRome(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{wire.OriginLabel: "rome", wire.CreatorUserLabel: "rome"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}},
		}},
	}
}

// cache replaces the cache of a manager. It contains a pod and the Quota of rome's user.
type cache struct {
	client.Reader
	isCordoned bool
}

// List implements client.Reader.
func (c *cache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.PodList:
		l.Items = []corev1.Pod{*podOfRome("other", "1700m")}
	case *offloading.QuotaList:
		l.Items = []offloading.Quota{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "rome"},
			Spec:       offloading.QuotaSpec{User: "rome", Cordoned: &c.isCordoned, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
		}}
	case *corev1.NamespaceList:
		l.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}}
	}
	return nil
}

// requested returns a request of rome's user for a pod with the given CPU. If before is not empty, the request updates
// the pod, whose CPU was before.
func requested(t *testing.T, cpu, before string) admission.Request {
	t.Helper()
	encoded := func(cpu string) runtime.RawExtension {
		pod := podOfRome("web", cpu)
		text, err := json.Marshal(&offloading.ShadowPod{ObjectMeta: pod.ObjectMeta, Spec: offloading.ShadowPodSpec{Pod: pod.Spec}})
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

// TestAnswersToStrangers checks that a response does not contain the usage of a consumer if the client may be someone
// else. For a new pod, the controller reports the usage on the ShadowPod.
func TestAnswersToStrangers(t *testing.T) {
	for _, tc := range []struct {
		cordoned    bool
		identified  bool
		cpu, before string
		allowed     bool
		says        string
	}{
		{false, true, "300m", "", true, ""},
		{false, true, "400m", "", false, "cpu: requested 400m, used 1700m, limited 2"},
		{false, true, "400m", "100m", false, "cpu: requested 400m, used 1700m, limited 2"},
		{false, false, "400m", "", true, ""},
		{false, false, "400m", "100m", false, "exceeds the Quota of user rome: cpu"},
		{false, false, "100m", "400m", true, ""},
		{true, false, "1m", "", false, "the Quota is cordoned"},
	} {
		webhook := NewWebhook(ledger.New(&cache{isCordoned: tc.cordoned}, ledger.Options{}), tc.identified)
		response := webhook.Handle(t.Context(), requested(t, tc.cpu, tc.before))
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
