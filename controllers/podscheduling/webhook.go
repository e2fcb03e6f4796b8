// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/reviews"
)

// Path is the URL path of the webhook. It is the same as in Liqo.
const Path = "/mutate/pod"

// Options are the settings of the webhook.
type Options struct {
	// RuntimeClass is the name of a runtime class. Pods of this class are not changed, because the class already
	// selects their nodes. If it is empty, there is no such class.
	RuntimeClass string
}

// Webhook mutates pods at admission. It is safe for concurrent use.
type Webhook struct {
	cache, live client.Reader
	options     Options
}

// NewWebhook returns a webhook that reads NamespaceOffloadings from cache. If the cache does not contain a
// NamespaceOffloading, the webhook reads it with live from the API server, because pods are often created immediately
// after the NamespaceOffloading.
func NewWebhook(cache, live client.Reader, options Options) *Webhook {
	return &Webhook{cache: cache, live: live, options: options}
}

// Register serves the webhook on server, with the cache of mgr. It starts an informer for NamespaceOffloadings, even
// on replicas that are not the leader.
func (w *Webhook) Register(ctx context.Context, mgr manager.Manager, server webhook.Server) error {
	if _, err := mgr.GetCache().GetInformer(ctx, &offloading.NamespaceOffloading{}); err != nil {
		return fmt.Errorf("watching NamespaceOffloadings, %w", err)
	}
	server.Register(Path, reviews.Limit(&admission.Webhook{Handler: w}))
	return nil
}

// Handle implements admission.Handler. For an update, it only restores the toleration that it added when the pod was
// created.
func (w *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	p, err := decodePod(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if p.isMirror() || w.options.RuntimeClass != "" && p.Spec.RuntimeClassName == w.options.RuntimeClass {
		return admission.Allowed("")
	}
	if request.Operation == admissionv1.Update {
		return p.keepToleration(request.OldObject.Raw)
	}
	nso := &offloading.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: request.Namespace, Name: offloading.NamespaceOffloadingName}
	if err = w.cache.Get(ctx, key, nso); apierrors.IsNotFound(err) {
		err = w.live.Get(ctx, key, nso)
	}
	if apierrors.IsNotFound(err) {
		return admitUnchanged(ctx, fmt.Sprintf("namespace %s has the label %s but no NamespaceOffloading named %q: the pod stays in this cluster; run: refractctl offload namespace %s",
			request.Namespace, wire.SchedulingEnabledLabel, offloading.NamespaceOffloadingName, request.Namespace))
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("getting NamespaceOffloading in %s, %w", request.Namespace, err))
	}
	if nso.DeletionTimestamp != nil {
		return admission.Allowed("") // the offloading label of the namespace will be removed soon
	}
	where, err := placementOf(&nso.Spec)
	if err != nil {
		return admitUnchanged(ctx, fmt.Sprintf("NamespaceOffloading %s/%s is ignored and the pod stays in this cluster: correct spec.%s", nso.Namespace, nso.Name, err))
	}
	return p.patchFor(where).Admitted()
}

// keepToleration restores the toleration for virtual nodes if the update drops it. API servers that support
// matchConditions send only such updates. Older API servers send all updates.
func (p *pod) keepToleration(old []byte) admission.Response {
	before, err := decodePod(old)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !before.hasToleration() || p.hasToleration() {
		return admission.Allowed("")
	}
	return p.restoreToleration().Admitted()
}

// admitUnchanged admits the pod without changes. It warns the creator of the pod, and logs, why the pod is not
// offloaded.
func admitUnchanged(ctx context.Context, why string) admission.Response {
	log.FromContext(ctx).Info("Pod admitted unchanged", "reason", why)
	return admission.Allowed("").WithWarnings(why)
}
