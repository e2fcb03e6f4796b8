// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/reviews"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// Path is the URL path of the webhook, the same as Liqo's.
const Path = "/mutate/shadowpods"

// Webhook records the creator of a ShadowPod, and refuses ShadowPods that exceed a Quota, so that the consumer gets the
// result immediately. The controller makes the final decision, because several replicas serve the webhook, and it may
// be unavailable. The webhook ignores deletions, because the usage is computed from the pods. It is safe for concurrent
// use.
type Webhook struct {
	ledger *ledger.Ledger
	// identified is true if only API servers can call the webhook. Otherwise its responses must not reveal the usage of
	// a Quota.
	identified bool
}

// NewWebhook returns a webhook that uses ledger. identified reports whether only API servers can call it. If not,
// anyone in the cluster could send a request in the name of any consumer, so the responses do not contain the usage of
// a Quota.
func NewWebhook(ledger *ledger.Ledger, identified bool) *Webhook {
	return &Webhook{ledger: ledger, identified: identified}
}

// Register serves the webhook on server. It starts an informer for Quotas, even on replicas that are not the leader.
func (w *Webhook) Register(ctx context.Context, mgr manager.Manager, server webhook.Server) error {
	if _, err := mgr.GetCache().GetInformer(ctx, &offloading.Quota{}); err != nil {
		return fmt.Errorf("watching Quotas, %w", err)
	}
	if w.ledger.NeedsTenants() {
		if _, err := mgr.GetCache().GetInformer(ctx, &auth.Tenant{}); err != nil {
			return fmt.Errorf("watching Tenants, %w", err)
		}
	}
	server.Register(Path, w.handler())
	return nil
}

// handler returns the handler of admission reviews. It limits the size of reviews and the memory for decoding them.
func (w *Webhook) handler() http.Handler {
	return reviews.RefuseLarge(reviews.Limit(&admission.Webhook{Handler: w}), shadows.Limits.Bytes, tooLarge(shadows.Limits.ExcessBytes()))
}

// Configuration returns the webhook for ShadowPods in the webhook configuration that the chart installs.
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
		return refuseLarge(request.Object.Raw, excess)
	}
	shadow, err := decodeShadowPod(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var before *offloading.ShadowPod
	if request.Operation == admissionv1.Update {
		if before, err = decodeOld(request.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	creator := creatorOf(&request, shadow, before)
	patch := setCreatorLabel(shadow, creator)
	if shadow.DeletionTimestamp != nil || before != nil && reflect.DeepEqual(before.Spec.Pod, shadow.Spec.Pod) {
		return patch.Admitted()
	}
	if shadow.Labels == nil {
		shadow.Labels = map[string]string{}
	}
	shadow.Labels[wire.CreatorUserLabel] = creator
	change := ledger.Request{Key: types.NamespacedName{Namespace: request.Namespace, Name: request.Name}, Labels: shadow.Labels, Spec: &shadow.Spec.Pod}
	if before != nil {
		change.Present, change.Replaces = &corev1.Pod{Spec: before.Spec.Pod}, !sameButForSize(&before.Spec.Pod, &shadow.Spec.Pod)
	}
	refusal, err := w.ledger.AnnounceRequest(ctx, change, ptr.Deref(request.DryRun, false))
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case refusal == nil:
		return patch.Admitted()
	case refusal.Discreet == nil || w.identified:
		return admission.Denied(refusal.Error())
	case before == nil:
		// The new ShadowPod is admitted although it exceeds the Quota, because the response to this client must not
		// contain the usage. The controller does not create the pod, and reports the usage in an Event and a condition of
		// the ShadowPod, which only the consumer can read.
		return patch.Admitted()
	}
	return admission.Denied(refusal.Discreet.Error())
}

// CreatorLabel returns the value of the label creator-user on ShadowPods that a user creates.
func CreatorLabel(username string) string { return ledger.EscapeUser(wire.ConsumerUser(username)) }

// creatorOf returns the creator of a ShadowPod. If the request creates the ShadowPod, this is the user of the request.
// Otherwise it is the recorded creator. If none is recorded, the consumer's next request records its user.
func creatorOf(request *admission.Request, shadow, before *offloading.ShadowPod) string {
	user := CreatorLabel(request.UserInfo.Username)
	switch {
	case before == nil:
		return user
	case before.Labels[wire.CreatorUserLabel] != "":
		return before.Labels[wire.CreatorUserLabel]
	case user != ledger.EscapeUser(request.UserInfo.Username), slices.Contains(request.UserInfo.Groups, shadow.Labels[wire.OriginLabel]):
		return user
	}
	return shadow.Labels[wire.CreatorUserLabel] // set by an administrator of this cluster
}

// sameButForSize reports whether two specs of a pod differ only in fields that may change in a running pod: the sizes,
// the tolerations, the deadline and the ephemeral containers.
func sameButForSize(before, now *corev1.PodSpec) bool {
	a, b := before.DeepCopy(), now.DeepCopy()
	for _, spec := range []*corev1.PodSpec{a, b} {
		spec.Resources, spec.Tolerations, spec.ActiveDeadlineSeconds, spec.EphemeralContainers = nil, nil, nil, nil
		for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
			for i := range containers {
				containers[i].Resources = corev1.ResourceRequirements{}
			}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// refuseLarge refuses a ShadowPod that would take too much memory to decode. If the ShadowPod is being deleted, its
// finalizers may still be removed.
func refuseLarge(raw []byte, excess string) admission.Response {
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the metadata of the ShadowPod: %w", err))
	}
	if object.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	return admission.Denied(tooLarge(excess))
}

func tooLarge(excess string) string {
	return fmt.Sprintf("a ShadowPod of this size is not allowed here: %s; reduce it, for example by moving values of env into a ConfigMap", excess)
}

// decodeOld returns the previous version of a ShadowPod. If it would take too much memory to decode, only its metadata
// is returned. Such ShadowPods may exist, because earlier versions of this webhook admitted them.
func decodeOld(raw []byte) (*offloading.ShadowPod, error) {
	if shadows.Limits.ExceededBy(raw) == "" {
		return decodeShadowPod(raw)
	}
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("reading the metadata of the previous ShadowPod: %w", err)
	}
	return &offloading.ShadowPod{ObjectMeta: object.ObjectMeta}, nil
}

func decodeShadowPod(raw []byte) (*offloading.ShadowPod, error) {
	shadow := &offloading.ShadowPod{}
	if err := json.Unmarshal(raw, shadow); err != nil {
		return nil, fmt.Errorf("reading the ShadowPod: %w; spec.pod must be a pod's spec", err)
	}
	return shadow, nil
}

// setCreatorLabel returns a patch that sets the creator label, and overwrites an existing value.
func setCreatorLabel(shadow *offloading.ShadowPod, creator string) (patch jsonpatch.Patch) {
	switch {
	case shadow.Labels[wire.CreatorUserLabel] == creator:
	case shadow.Labels == nil:
		patch.Add("/metadata/labels", map[string]string{wire.CreatorUserLabel: creator})
	default:
		patch.Add(jsonpatch.Pointer("metadata", "labels", wire.CreatorUserLabel), creator)
	}
	return patch
}
