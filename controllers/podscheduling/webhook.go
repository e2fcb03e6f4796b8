// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"context"
	"fmt"
	"net/http"

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

// Path is the URL path of the webhook, the same as Liqo's.
const Path = "/mutate/pod"

// Options are the settings of the webhook.
type Options struct {
	// RuntimeClass is the runtime class of the pods that are left unchanged, because it selects their nodes itself. If
	// it is empty, no pods are excepted.
	RuntimeClass string
}

// Webhook mutates pods at admission. It is safe for concurrent use.
type Webhook struct {
	reader  client.Reader
	options Options
}

// NewWebhook returns a webhook that reads NamespaceOffloadings from reader. The reader should be a cache, because it is
// used for every pod.
func NewWebhook(reader client.Reader, options Options) *Webhook {
	return &Webhook{reader: reader, options: options}
}

// Register serves the webhook on server with the cache of mgr. It starts an informer for NamespaceOffloadings also on
// replicas that are not the leader.
func (w *Webhook) Register(ctx context.Context, mgr manager.Manager, server webhook.Server) error {
	if _, err := mgr.GetCache().GetInformer(ctx, &offloading.NamespaceOffloading{}); err != nil {
		return fmt.Errorf("watching NamespaceOffloadings, %w", err)
	}
	server.Register(Path, reviews.Limit(&admission.Webhook{Handler: w}))
	return nil
}

// Handle implements admission.Handler.
func (w *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	p, err := decodePod(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if p.isMirror() || w.options.RuntimeClass != "" && p.Spec.RuntimeClassName == w.options.RuntimeClass {
		return admission.Allowed("")
	}
	nso := &offloading.NamespaceOffloading{}
	err = w.reader.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: offloading.NamespaceOffloadingName}, nso)
	if apierrors.IsNotFound(err) {
		return admitUnchanged(ctx, fmt.Sprintf("namespace %s has the label %s but no NamespaceOffloading named %q: the pod stays in this cluster; run: refractctl offload namespace %s",
			request.Namespace, wire.SchedulingEnabledLabel, offloading.NamespaceOffloadingName, request.Namespace))
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("getting NamespaceOffloading in %s, %w", request.Namespace, err))
	}
	if nso.DeletionTimestamp != nil {
		return admission.Allowed("") // the label is about to be removed
	}
	where, err := placementOf(&nso.Spec)
	if err != nil {
		return admitUnchanged(ctx, fmt.Sprintf("NamespaceOffloading %s/%s is ignored and the pod stays in this cluster: correct spec.%s", nso.Namespace, nso.Name, err))
	}
	return p.patchFor(where).Admitted()
}

// admitUnchanged admits the pod without changes. A warning to its creator and a log message have the reason why it is not
// offloaded.
func admitUnchanged(ctx context.Context, why string) admission.Response {
	log.FromContext(ctx).Info("Pod admitted unchanged", "reason", why)
	return admission.Allowed("").WithWarnings(why)
}
