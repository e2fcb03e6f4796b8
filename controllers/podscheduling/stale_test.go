// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// offloadingReader reads one NamespaceOffloading, or none.
type offloadingReader struct {
	client.Reader
	exists bool
	reads  int
}

func (r *offloadingReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	r.reads++
	if !r.exists {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaceoffloadings"}, key.Name)
	}
	obj.(*offloading.NamespaceOffloading).Spec.PodOffloadingStrategy = offloading.RemotePodOffloadingStrategyType
	return nil
}

// TestHandleReadsWhatTheCacheLacks checks that pods are offloaded even if the NamespaceOffloading is not in the cache
// yet. Otherwise the API server must not be called.
func TestHandleReadsWhatTheCacheLacks(t *testing.T) {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "shop",
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`)},
	}}
	for name, tc := range map[string]struct {
		cached, stored bool
		wantReads      int
		wantPatched    bool
	}{
		"cached":        {cached: true, stored: true, wantPatched: true},
		"not yet there": {stored: true, wantReads: 1, wantPatched: true},
		"not offloaded": {wantReads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache, live := &offloadingReader{exists: tc.cached}, &offloadingReader{exists: tc.stored}
			response := NewWebhook(cache, live, Options{}).Handle(t.Context(), request)
			assert.True(t, response.Allowed)
			assert.Equal(t, tc.wantReads, live.reads)
			assert.Equal(t, tc.wantPatched, len(response.Patches) > 0 || len(response.Patch) > 0)
		})
	}
}
