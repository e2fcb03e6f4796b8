// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/jsonpatch"
)

const fieldManager = wire.ReplicatorFieldManager

func newPool(scheme *runtime.Scheme, options Options) *remote.Pool {
	return remote.NewPool(remote.Options{
		Scheme: scheme, Kind: offloading.GroupVersion.WithKind(offloading.NamespaceMapKind),
		Selector: labels.SelectorFromSet(labels.Set{wire.OriginIDLabel: options.ClusterID.String(), wire.ReplicatedLabel: "true"}),
		Others:   []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")},
		SameName: true, // a copy has the name of its original
		Observe:  options.Observe,
	})
}

// newBrake returns the brake for the copies. The provider deletes remote namespaces if their copy is deleted or
// changed, so copies are always restored within seconds.
func newBrake(reporter *report.Reporter, c clock.PassiveClock) *brake.Brake {
	return brake.New(offloading.GroupVersion.WithKind(offloading.NamespaceMapKind), nil, reporter, c).Restoring()
}

// copies gives access to this cluster's NamespaceMaps on a provider.
type copies struct {
	*remote.Remote
	origin core.ClusterID
	brake  *brake.Brake // limits how often a copy is restored while another client keeps changing or deleting it
}

// getCopy returns the NamespaceMap with the given name on the provider, or nil if it does not exist.
func (r copies) getCopy(ctx context.Context, name string) (*offloading.NamespaceMap, error) {
	copied := &offloading.NamespaceMap{}
	err := r.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, copied)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, report.Errorf(report.Provider, "getting NamespaceMap %s/%s on the provider, %w", r.Namespace, name, err)
	}
	return copied, nil
}

func (r copies) isCopy(copied *offloading.NamespaceMap) bool {
	return copied.Labels[wire.ReplicatedLabel] == "true" && copied.Labels[wire.OriginIDLabel] == r.origin.String()
}

// createCopy creates the copy. It returns a *oscillation.QuarantineError while another client keeps deleting the copy.
func (r copies) createCopy(ctx context.Context, local *offloading.NamespaceMap) error {
	if err := r.brake.MayCreate(ctx, local, replicateAction); err != nil {
		return err
	}
	copied := &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: local.Name,
			Labels: maps.Clone(local.Labels), Annotations: maps.Clone(local.Annotations),
		},
		Spec: *local.Spec.DeepCopy(),
	}
	delete(copied.Labels, wire.RemoteIDLabel)
	delete(copied.Annotations, wire.DeleteDataAnnotation)
	maps.Copy(copied.Labels, map[string]string{
		wire.ReplicationLabel:     "false",
		wire.ReplicatedLabel:      "true",
		wire.OriginIDLabel:        r.origin.String(),
		wire.RemoteClusterIDLabel: r.origin.String(),
	})
	if err := r.Create(ctx, copied, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "creating NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	r.brake.Created(local)
	return nil
}

// updateCopy writes the desired spec to the copy of local. It returns a *oscillation.QuarantineError while another
// client keeps reverting it.
func (r copies) updateCopy(ctx context.Context, local *offloading.NamespaceMap, desired offloading.NamespaceMapSpec, copied *offloading.NamespaceMap) error {
	changes := changeMapping(copied.Spec.DesiredMapping, desired.DesiredMapping)
	if len(changes) == 0 {
		return nil
	}
	if err := r.brake.MayChange(ctx, local, replicateAction, "", changes); err != nil {
		return err
	}
	patch, err := changes.For(copied.UID)
	if err != nil {
		return err
	}
	if err := r.Patch(ctx, copied, patch, client.FieldOwner(fieldManager)); err != nil {
		return report.Errorf(report.Provider, "updating NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	r.brake.Changed(local, "", changes)
	return nil
}

// changeMapping returns a patch from the actual to the desired mapping. Each entry has an operation of its own, so that
// a client that reverts one entry is detected even if it also changes other entries each time.
func changeMapping(actual, desired map[string]string) (changes jsonpatch.Patch) {
	if len(actual) == 0 {
		if len(desired) > 0 {
			changes.Add("/spec", offloading.NamespaceMapSpec{DesiredMapping: desired})
		}
		return changes
	}
	for _, namespace := range slices.Sorted(maps.Keys(desired)) {
		if actual[namespace] != desired[namespace] {
			changes.Add(jsonpatch.Pointer("spec", "desiredMapping", namespace), desired[namespace])
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(actual)) {
		if _, ok := desired[namespace]; !ok {
			changes.Remove(jsonpatch.Pointer("spec", "desiredMapping", namespace))
		}
	}
	return changes
}

// removeCopy withdraws all entries of the copy except the kept ones. If none are kept, it deletes the copy. It reports
// whether only the kept entries are left. Entries are withdrawn before the deletion, because the provider keeps the
// data of a NamespaceMap that still requests it.
func (r copies) removeCopy(ctx context.Context, local *offloading.NamespaceMap, kept map[string]string) (bool, error) {
	copied, err := r.getCopy(ctx, local.Name)
	if err != nil {
		return false, err
	}
	if copied == nil || !r.isCopy(copied) {
		return true, nil
	}
	if err := r.updateCopy(ctx, local, offloading.NamespaceMapSpec{DesiredMapping: kept}, copied); err != nil {
		return false, err
	}
	if len(kept) > 0 {
		for namespace := range copied.Status.CurrentMapping {
			if _, ok := kept[namespace]; !ok {
				return false, nil
			}
		}
		return true, nil
	}
	if copied.DeletionTimestamp != nil {
		return false, nil
	}
	err = r.Delete(ctx, copied, client.Preconditions{UID: &copied.UID})
	if client.IgnoreNotFound(err) != nil {
		return false, report.Errorf(report.Provider, "deleting NamespaceMap %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	return false, nil
}
