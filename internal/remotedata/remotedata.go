// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package remotedata decides whether a remote namespace may be deleted with its content.
//
// If a claim of the consumer has its data on a provider, a PersistentVolume on the consumer represents this data. The
// reclaim policy of this volume determines whether the remote namespace may be deleted:
//
//   - Retain: the data is kept until the policy is changed or the volume is deleted.
//   - Delete, and the claim exists: the data is kept unless its deletion is confirmed with wire.DeleteDataAnnotation.
//   - Delete, and the claim is gone: its user has requested the deletion of the data.
package remotedata

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// HeldReason is the reason of conditions and Events about remote namespaces that are not deleted because they contain
// data.
const HeldReason = "DataOnProvider"

// Limits of the interval at which held remote namespaces are checked. Their volumes are not watched, and each check
// lists the volumes of the cluster.
const (
	minRecheckInterval = time.Second
	// MaxRecheckInterval is the interval for namespaces that have been held for a long time.
	MaxRecheckInterval = time.Minute
)

// RecheckInterval returns the delay until the next check of a remote namespace that has been held for the given time: a
// quarter of this time, within the limits above.
func RecheckInterval(held time.Duration) time.Duration {
	return min(max(held/4, minRecheckInterval), MaxRecheckInterval)
}

// IsConfirmed reports whether any of the objects has the annotation that confirms the deletion of data.
func IsConfirmed(objects ...client.Object) bool {
	return slices.ContainsFunc(objects, func(object client.Object) bool { return object.GetAnnotations()[wire.DeleteDataAnnotation] == "true" })
}

// Volume is a PersistentVolume on the consumer that represents data on a provider.
type Volume struct {
	Name string
	// Providers contains the IDs of the clusters that may have the data. Usually there is only one.
	Providers []string
	// Claim is the claim of the volume. It is empty if the volume has none.
	Claim types.NamespacedName
	// Retained is true if the reclaim policy is not Delete.
	Retained bool
	// Released is true if Kubernetes has found that the claim no longer exists.
	Released bool
}

func (v Volume) String() string {
	text := v.Name
	if v.Claim.Name != "" {
		text += " of claim " + v.Claim.String()
	}
	if v.Retained {
		text += " (Retain)"
	}
	return text
}

// Volumes is a list of PersistentVolumes on the consumer.
type Volumes []Volume

// listPage is the page size for listing volumes. It limits the memory that is needed in a large cluster.
const listPage = 500

// List returns the volumes that represent data on any provider. live must not be cached, because the current state
// matters.
func List(ctx context.Context, live client.Reader) (volumes Volumes, err error) {
	for next := ""; ; {
		page := &corev1.PersistentVolumeList{}
		if err := live.List(ctx, page, client.Limit(listPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing PersistentVolumes, %w", err)
		}
		for i := range page.Items {
			if providers := providersOf(&page.Items[i]); len(providers) > 0 {
				volumes = append(volumes, newVolume(&page.Items[i], providers))
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	return volumes, nil
}

func newVolume(pv *corev1.PersistentVolume, providers []string) Volume {
	v := Volume{
		Name: pv.Name, Providers: providers,
		Retained: pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete,
		Released: pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed,
	}
	if claim := pv.Spec.ClaimRef; claim != nil {
		v.Claim = types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	}
	return v
}

// providersOf returns the clusters that may have the data of a volume. The virtual kubelet records the cluster in a
// label of the volume. Volumes of Liqo do not have this label. For them, it returns the clusters of the nodes that can
// use the volume.
func providersOf(pv *corev1.PersistentVolume) (providers []string) {
	if destination := pv.Labels[wire.DestinationLabel]; destination != "" {
		return []string{destination}
	}
	if pv.Annotations[wire.ProvisionedByAnnotation] != wire.StorageProvisioner || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == wire.RemoteClusterIDLabel && expression.Operator == corev1.NodeSelectorOpIn {
				providers = append(providers, expression.Values...)
			}
		}
	}
	return providers
}

func (v Volumes) filterVolumes(keep func(Volume) bool) (kept Volumes) {
	for _, volume := range v {
		if keep(volume) {
			kept = append(kept, volume)
		}
	}
	return kept
}

// On returns the volumes whose data may be on the given provider.
func (v Volumes) On(provider string) Volumes {
	return v.filterVolumes(func(volume Volume) bool { return slices.Contains(volume.Providers, provider) })
}

// In returns the volumes whose data is in the remote namespace of the given namespace. A volume without a claim is
// included, because its data may be in any remote namespace.
func (v Volumes) In(namespace string) Volumes {
	return v.filterVolumes(func(volume Volume) bool { return volume.Claim.Namespace == namespace || volume.Claim.Namespace == "" })
}

// Holding returns the volumes that prevent the deletion of their remote namespaces. confirmed reports whether the
// deletion of data was confirmed.
func (v Volumes) Holding(confirmed bool) Volumes {
	return v.filterVolumes(func(volume Volume) bool { return volume.Retained || !volume.Released && !confirmed })
}

// AreReleased reports whether the claims of all volumes are gone.
func (v Volumes) AreReleased() bool {
	return !slices.ContainsFunc(v, func(volume Volume) bool { return !volume.Released })
}

// Names returns the names of the volumes.
func (v Volumes) Names() []string {
	names := make([]string, len(v))
	for i := range v {
		names[i] = v[i].Name
	}
	return names
}

// maxNamed is the maximum number of volumes that a message names.
const maxNamed = 8

func (v Volumes) String() string {
	texts := make([]string, 0, maxNamed+1)
	for _, volume := range v[:min(len(v), maxNamed)] {
		texts = append(texts, volume.String())
	}
	if more := len(v) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// Remedy returns instructions for releasing remote namespaces that are held by volumes. confirm describes how to
// confirm the deletion, and is inserted after "or".
func (v Volumes) Remedy(confirm string) string {
	var remedies []string
	if inUse := v.filterVolumes(func(volume Volume) bool { return !volume.Retained }); len(inUse) > 0 {
		remedies = append(remedies, "copy the data elsewhere and delete the claims, or "+confirm)
	}
	if retained := v.filterVolumes(func(volume Volume) bool { return volume.Retained }); len(retained) > 0 {
		remedies = append(remedies, "for volumes with the reclaim policy Retain, set persistentVolumeReclaimPolicy to Delete, or delete the PersistentVolume")
	}
	return strings.Join(remedies, "; ")
}

// Annotate returns the instruction to confirm the deletion with an annotation on the object. It can be passed to
// Remedy.
func Annotate(object string) string {
	return fmt.Sprintf("annotate the %s with %s=true to delete it", object, wire.DeleteDataAnnotation)
}
