// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/printable"
)

// maxMessage is the maximum length of a provider's message in a condition, in bytes.
const maxMessage = 512

// getCopy returns the ResourceSlice with the given name on the provider, or nil if it does not exist.
func (s *ResourceSlices) getCopy(ctx context.Context, provider *remote.Remote, name string) (*auth.ResourceSlice, error) {
	copied := &auth.ResourceSlice{}
	err := provider.Get(ctx, client.ObjectKey{Namespace: provider.Namespace, Name: name}, copied)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err != nil {
		return nil, report.Errorf(report.Provider, "getting ResourceSlice %s/%s on the provider, %w", provider.Namespace, name, err)
	}
	return copied, nil
}

// isCopy reports whether an object on the provider is a copy that this controller has created. The requests of refractctl
// peer at a provider that runs Liqo have the same labels, and one more.
func (s *ResourceSlices) isCopy(copied *auth.ResourceSlice) bool {
	return copied.Labels[wire.ReplicatedLabel] == "true" && copied.Labels["app.kubernetes.io/managed-by"] != wire.ManagedByRefractctl && copied.Labels[wire.OriginIDLabel] == s.options.ClusterID.String()
}

// createCopy creates the copy of a slice. It returns a *oscillation.QuarantineError while another client keeps deleting
// the copy.
func (s *ResourceSlices) createCopy(ctx context.Context, provider *remote.Remote, slice *auth.ResourceSlice) error {
	guard := s.brake.In(provider.Namespace, provider)
	if err := guard.MayCreate(ctx, slice, sendAction); err != nil {
		return err
	}
	copied := &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: provider.Namespace, Name: slice.Name, Labels: maps.Clone(slice.Labels), Annotations: maps.Clone(slice.Annotations)},
		Spec:       *slice.Spec.DeepCopy(),
	}
	delete(copied.Labels, wire.RemoteIDLabel)
	maps.Copy(copied.Labels, copyLabels(s.options.ClusterID.String()))
	// Annotations of controllers are for this cluster.
	maps.DeleteFunc(copied.Annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "liqo.io" || domain == "plugins.refract.io" || domain == "kubectl.kubernetes.io"
	})
	if err := provider.Create(ctx, copied, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "creating ResourceSlice %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	guard.Created(slice)
	return nil
}

// updateCopy makes the spec of the copy equal to that of the slice. It returns a *oscillation.QuarantineError while
// another client keeps reverting it.
func (s *ResourceSlices) updateCopy(ctx context.Context, provider *remote.Remote, slice, copied *auth.ResourceSlice) error {
	if equality.Semantic.DeepEqual(slice.Spec, copied.Spec) || copied.DeletionTimestamp != nil {
		return nil
	}
	changes, guard := jsonpatch.Patch{}, s.brake.In(provider.Namespace, provider)
	changes.Add("/spec", slice.Spec)
	if err := guard.MayChange(ctx, slice, sendAction, "", changes); err != nil {
		return err
	}
	patch, err := changes.For(copied.UID)
	if err != nil {
		return err
	}
	if err := provider.Patch(ctx, copied, patch, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "updating ResourceSlice %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	guard.Changed(slice, "", changes)
	return nil
}

// copyStatus copies the provider's answer to the slice. It reports false if the answer has changed too often; it is
// copied after answerInterval then.
func (s *ResourceSlices) copyStatus(ctx context.Context, slice, copied *auth.ResourceSlice) (followed bool, err error) {
	answered, key := statusFrom(copied), client.ObjectKeyFromObject(slice)
	if equality.Semantic.DeepEqual(slice.Status, answered) {
		return true, nil
	}
	if !s.mayFollow(key) {
		return false, nil
	}
	changed := slice.DeepCopy()
	changed.Status = answered
	if err := s.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return false, fmt.Errorf("writing the status of ResourceSlice %s, %w", key, err)
	}
	s.countAnswer(key)
	*slice = *changed
	return true, nil
}

// mayFollow reports whether the status of a slice may be written now, after the writes that countAnswer has counted.
func (s *ResourceSlices) mayFollow(slice types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limiter := s.answers[slice]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(answerInterval), answerBurst)
		s.answers[slice] = limiter
	}
	return limiter.TokensAt(s.options.Clock.Now()) >= 1
}

// countAnswer counts a write of the status of a slice. Writes that fail do not count, so that they are repeated as usual.
func (s *ResourceSlices) countAnswer(slice types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limiter := s.answers[slice]; limiter != nil {
		limiter.AllowN(s.options.Clock.Now(), 1)
	}
}

// statusFrom returns the status of a copy without what this cluster does not use. Texts of the provider are sanitized
// and shortened.
func statusFrom(copied *auth.ResourceSlice) auth.ResourceSliceStatus {
	status := *copied.Status.DeepCopy()
	conditions := status.Conditions
	status.Conditions = nil
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		for _, condition := range conditions {
			known := condition.Status == auth.ResourceSliceAccepted || condition.Status == auth.ResourceSliceDenied
			if condition.Type == what && known && status.Condition(what) == nil {
				condition.Reason = printable.Shorten(printable.Line(condition.Reason), maxMessage)
				condition.Message = printable.Shorten(printable.Line(condition.Message), maxMessage)
				status.Conditions = append(status.Conditions, condition)
			}
		}
	}
	return status
}
