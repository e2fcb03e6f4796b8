// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

const (
	// DenialInterval is the minimum time between the two denials of a permission that prove that it was withdrawn. An
	// API server denies requests for a moment after its start. With a shorter interval, pods would fail because of
	// that.
	DenialInterval = 2 * time.Second
	// denialLifetime is how long a denial counts. With a longer time, two short disturbances of the provider would
	// count as a withdrawal.
	denialLifetime = time.Minute
	// grantReviewInterval is the minimum time between reviews of a permission that was never granted. An upgrade of the
	// provider may grant it. With a shorter interval, providers that run Liqo, which never grant it, would get more
	// requests.
	grantReviewInterval = time.Minute
)

// reviews contains the results of access reviews by the provider. They distinguish a provider that has withdrawn the
// access of this cluster, such as one that has drained its Tenant, from one that lacks a remote namespace for a moment:
// the permissions in a remote namespace are deleted with it, and return when the provider recreates it. So the
// permission in the tenant namespace must be gone, too, and this cluster must have had it before. The zero value is
// ready for use. It is safe for concurrent use.
type reviews struct {
	mu         sync.Mutex
	granted    bool               // the permission in the tenant namespace was granted before
	reviewed   time.Time          // time of the last review of that permission while it was not granted
	namespaces map[string]*denial // by remote namespace
}

// denial contains the latest denials of the permissions for one remote namespace.
type denial struct {
	requested         time.Time // time of the last review
	creation, tenancy span
}

// span is the time between the first and the latest of several consecutive denials, zero if there are none.
type span struct{ first, latest time.Time }

// add adds the result of a review to the span.
func (s *span) add(denied bool, now time.Time) {
	switch {
	case !denied:
		*s = span{}
	case s.first.IsZero():
		*s = span{now, now}
	default:
		s.latest = now
	}
}

// isProof reports whether the denials are far enough apart.
func (s *span) isProof() bool { return s.latest.Sub(s.first) >= DenialInterval }

// creation is the permission to create ShadowPods in a remote namespace.
func creation(namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: offloadingv1beta1.GroupVersion.Group, Resource: offloadingv1beta1.ShadowPodGVR.Resource}
}

// tenancy is a permission that a consumer has in its tenant namespace on the provider, and its virtual kubelets use.
func tenancy(namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: "coordination.k8s.io", Resource: "leases", Name: wire.HeartbeatLease}
}

// noteAccess records that the provider grants the permission in the tenant namespace. It sends a review until the
// permission was granted once.
func (h *Handler) noteAccess(ctx context.Context) {
	namespace, now := h.Options().RemoteTenantNamespace, h.Clock().Now()
	if namespace == "" || readonly.Marked(ctx) || !h.reviews.claimGrant(now) {
		return
	}
	if allowed, err := h.Clients.ReviewRemote(ctx, tenancy(namespace)); err == nil && allowed {
		h.reviews.mu.Lock()
		defer h.reviews.mu.Unlock()
		h.reviews.granted = true
	}
}

// claimGrant reports whether the caller must review the permission in the tenant namespace.
func (r *reviews) claimGrant(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.granted || !r.reviewed.IsZero() && now.Sub(r.reviewed) < grantReviewInterval {
		return false
	}
	r.reviewed = now
	return true
}

// reviewAccess reports whether the provider lets this cluster create ShadowPods in the remote namespace of a pod, and
// whether it has withdrawn the access of this cluster as a whole. Both are false unless two reviews agree; the pod is
// enqueued for the second one. A review that fails proves nothing. refusal is the error of the last attempt to offload
// the pod.
func (h *Handler) reviewAccess(ctx context.Context, v *podView, refusal error) (denied, withdrawn bool) {
	if readonly.Marked(ctx) || !apierrors.IsForbidden(refusal) && !wasOffloaded(v) {
		return false, false
	}
	known, isDue := h.reviews.claimDenial(v.scope.Remote, h.Clock().Now())
	if isDue {
		known = h.review(ctx, v.scope.Remote)
	}
	denied, withdrawn = known.creation.isProof(), known.creation.isProof() && known.tenancy.isProof()
	if !withdrawn && !known.creation.first.IsZero() {
		h.Queue.AddAfter(v.key, DenialInterval)
	}
	return denied, withdrawn
}

// claimDenial returns the known denials for a remote namespace, and whether the caller must review the permissions.
func (r *reviews) claimDenial(namespace string, now time.Time) (known denial, isDue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.namespaces[namespace]
	if found == nil || now.Sub(found.requested) > denialLifetime {
		if r.namespaces == nil {
			r.namespaces = map[string]*denial{}
		}
		found = &denial{}
		r.namespaces[namespace] = found
	}
	if isDue = found.requested.IsZero() || now.Sub(found.requested) >= DenialInterval; isDue {
		found.requested = now
	}
	return *found, isDue
}

// review reviews the permissions for a remote namespace, and returns the denials.
func (h *Handler) review(ctx context.Context, namespace string) denial {
	isDenied := func(permission authorizationv1.ResourceAttributes) bool {
		allowed, err := h.Clients.ReviewRemote(ctx, permission)
		return err == nil && !allowed
	}
	noCreation := isDenied(creation(namespace))
	noTenancy := noCreation && h.reviews.wasGranted() && isDenied(tenancy(h.Options().RemoteTenantNamespace))
	return h.reviews.record(namespace, noCreation, noTenancy, h.Clock().Now())
}

func (r *reviews) wasGranted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.granted
}

// record records the results of a review, and returns the denials.
func (r *reviews) record(namespace string, noCreation, noTenancy bool, now time.Time) denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.namespaces[namespace]
	if found == nil {
		// A ShadowPod was created in the meantime.
		return denial{}
	}
	found.creation.add(noCreation, now)
	found.tenancy.add(noTenancy, now)
	return *found
}

// forget drops the denials for a remote namespace in which a ShadowPod was created.
func (r *reviews) forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.namespaces, namespace)
}

// wasOffloaded reports whether a pod had a ShadowPod.
func wasOffloaded(v *podView) bool {
	return v.state.shadow.uid != "" || raw.Labels(v.local.Object)[wire.OffloadedPodLabel] == "true"
}
