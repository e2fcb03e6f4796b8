// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/reviews"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// Path is where the webhook is served; it is Liqo's.
const Path = "/mutate/shadowpods"

// Webhook records the creator of a ShadowPod, and refuses those that exceed a Quota.
// It ignores deletions: usage is computed from the pods. It is
// safe for concurrent use.
type Webhook struct{ ledger *Ledger }

// NewWebhook returns a webhook that uses ledger.
func NewWebhook(ledger *Ledger) *Webhook { return &Webhook{ledger} }

// Register serves the webhook on server. The cache of mgr is made to hold
// Quotas also on replicas that do not lead.
func (w *Webhook) Register(ctx context.Context, mgr manager.Manager, server webhook.Server) error {
	if _, err := mgr.GetCache().GetInformer(ctx, &offloading.Quota{}); err != nil {
		return fmt.Errorf("watching Quotas, %w", err)
	}
	if w.ledger.options.OfTenants {
		if _, err := mgr.GetCache().GetInformer(ctx, &auth.Tenant{}); err != nil {
			return fmt.Errorf("watching Tenants, %w", err)
		}
	}
	server.Register(Path, reviews.Limit(&admission.Webhook{Handler: w}))
	return nil
}

// Configuration is the entry about ShadowPods of the webhook configuration. It
// is what the chart installs.
func Configuration(client admissionregistrationv1.WebhookClientConfig, policy admissionregistrationv1.FailurePolicyType) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:         "shadowpods.quota.refract.io",
		ClientConfig: client,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{offloading.GroupVersion.Group}, APIVersions: []string{offloading.GroupVersion.Version},
				Resources: []string{"shadowpods"}, Scope: ptr.To(admissionregistrationv1.NamespacedScope),
			},
		}},
		FailurePolicy:           &policy,
		MatchPolicy:             ptr.To(admissionregistrationv1.Equivalent),
		ReinvocationPolicy:      ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To(int32(5)),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// Handle implements admission.Handler.
func (w *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	if excess := shadows.Limits.ExceededBy(request.Object.Raw); excess != "" {
		return large(request.Object.Raw, excess)
	}
	shadow, err := decode(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	creator := Escape(wire.ConsumerUser(request.UserInfo.Username))
	changed := true
	if request.Operation == admissionv1.Update {
		before, err := decodeOld(request.OldObject.Raw)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if known := before.Labels[wire.CreatorUserLabel]; known != "" {
			creator = known
		}
		changed = !reflect.DeepEqual(before.Spec.Pod, shadow.Spec.Pod)
	}
	patch := label(shadow, creator)
	if changed && shadow.DeletionTimestamp == nil {
		if shadow.Labels == nil {
			shadow.Labels = map[string]string{}
		}
		shadow.Labels[wire.CreatorUserLabel] = creator
		refusal, err := w.ledger.Check(ctx, Pod{
			Key: types.NamespacedName{Namespace: request.Namespace, Name: request.Name}, Labels: shadow.Labels, Spec: &shadow.Spec.Pod,
			Again: request.Operation == admissionv1.Update,
		})
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if refusal != nil {
			return admission.Denied(refusal.Error())
		}
	}
	return patch.Admitted()
}

// large refuses a ShadowPod that would take too much memory to decode. One that is being deleted may lose its finalizers.
func large(raw []byte, excess string) admission.Response {
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the metadata of the ShadowPod: %w", err))
	}
	if object.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	return admission.Denied(fmt.Sprintf("a ShadowPod of this size is not allowed here: %s; reduce it, for example by moving values of env into a ConfigMap", excess))
}

// decodeOld returns the previous version of a ShadowPod. Of one that would take too much memory, as earlier versions of this webhook have
// admitted it, it returns the metadata.
func decodeOld(raw []byte) (*offloading.ShadowPod, error) {
	if shadows.Limits.ExceededBy(raw) == "" {
		return decode(raw)
	}
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("reading the metadata of the previous ShadowPod: %w", err)
	}
	return &offloading.ShadowPod{ObjectMeta: object.ObjectMeta}, nil
}

func decode(raw []byte) (*offloading.ShadowPod, error) {
	shadow := &offloading.ShadowPod{}
	if err := json.Unmarshal(raw, shadow); err != nil {
		return nil, fmt.Errorf("reading the ShadowPod: %w; spec.pod must be a pod's spec", err)
	}
	return shadow, nil
}

// label notes the creator, whatever the ShadowPod says of it.
func label(shadow *offloading.ShadowPod, creator string) (patch jsonpatch.Patch) {
	switch {
	case shadow.Labels[wire.CreatorUserLabel] == creator:
	case shadow.Labels == nil:
		patch.Add("/metadata/labels", map[string]string{wire.CreatorUserLabel: creator})
	default:
		patch.Add(jsonpatch.Pointer("metadata", "labels", wire.CreatorUserLabel), creator)
	}
	return patch
}
