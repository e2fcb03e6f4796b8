// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/quota"
)

// TestCreatorsHoldWithoutTheWebhook checks that a consumer cannot set another user as the creator of a ShadowPod, and
// cannot change or remove the recorded creator. This must hold even while no webhook responds; in this test, there is
// none.
func TestCreatorsHoldWithoutTheWebhook(t *testing.T) {
	h := hold(t)
	by := func(creator string) func(*offloadingv1beta1.ShadowPod) {
		return func(s *offloadingv1beta1.ShadowPod) { s.Labels[wire.CreatorUserLabel] = creator }
	}
	label := func(value string) client.Patch {
		if value != "null" {
			value = fmt.Sprintf("%q", value)
		}
		return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, wire.CreatorUserLabel, value))
	}
	long := strings.Repeat("u", 70)
	for user, groups := range map[string][]string{
		"rome": {"rome"}, "rome:gpu@x": {"rome"}, ":x_": {"rome"}, long: {"rome"}, "é": {"rome"}, "system:serviceaccount:liqo-tenant-rome:refract-consumer": nil,
	} {
		consumer, escaped := h.as(user, groups...), quota.CreatorLabel(user)
		h.refused(consumer, shadow(remoteNamespace, by("milan")), "is not the user of the request")
		h.refused(consumer, shadow(remoteNamespace, by("Q"+escaped[min(1, len(escaped)):])), "is not the user of the request")
		h.must(consumer.Create(t.Context(), shadow(remoteNamespace, by(escaped)), client.DryRunAll))
		h.must(consumer.Create(t.Context(), shadow(remoteNamespace, nil), client.DryRunAll))
	}

	rome := h.as("rome", "rome")
	recorded := shadow(remoteNamespace, by("rome"))
	h.must(rome.Create(t.Context(), recorded))
	update := func(what string, change func(*offloadingv1beta1.ShadowPod), says string) {
		h.Helper()
		changed := recorded.DeepCopy()
		change(changed)
		h.attempt(what, says, func() error { return rome.Update(t.Context(), changed.DeepCopy(), client.DryRunAll) })
	}
	update("removing the creator", func(s *offloadingv1beta1.ShadowPod) { delete(s.Labels, wire.CreatorUserLabel) }, "cannot be changed or removed")
	update("removing all labels but the origin", func(s *offloadingv1beta1.ShadowPod) { s.Labels = map[string]string{wire.OriginLabel: "rome"} }, "cannot be changed or removed")
	update("changing the creator", by("rome-gpu"), "cannot be changed or removed")
	update("changing another label", func(s *offloadingv1beta1.ShadowPod) { s.Labels["tier"] = "gold" }, "")
	gpu := h.as("rome-gpu", "rome")
	changed := recorded.DeepCopy()
	changed.Labels["tier"] = "gold"
	// If another user of the consumer updates the ShadowPod, the creator stays.
	h.must(gpu.Update(t.Context(), changed.DeepCopy(), client.DryRunAll))
	by("rome-gpu")(changed)
	h.attempt("taking a ShadowPod over", "cannot be changed or removed", func() error { return gpu.Update(t.Context(), changed.DeepCopy(), client.DryRunAll) })

	unknown := shadow(remoteNamespace, func(s *offloadingv1beta1.ShadowPod) { s.Name = "unknown" })
	h.must(rome.Create(t.Context(), unknown))
	by("rome-gpu")(unknown)
	h.attempt("naming another one later", "is not the user of the request", func() error { return rome.Update(t.Context(), unknown.DeepCopy(), client.DryRunAll) })
	by("rome")(unknown)
	h.must(rome.Update(t.Context(), unknown.DeepCopy(), client.DryRunAll))
	object := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: recorded.Name}}
	// An administrator may change the creator label.
	h.must(h.admin.Patch(t.Context(), object, label("somebody"), client.DryRunAll))
}
