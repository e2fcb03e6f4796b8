// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/remotedata"
)

// holdData finds entries of the copy that are no longer desired but whose remote namespaces contain data. It adds these
// entries to desired, and reports whether there are any. Other controllers do not withdraw entries with data in
// volumes, but users may edit the map, and only the provider knows which claims were created there.
func (c *Controller) holdData(ctx context.Context, r copies, local, copied *offloading.NamespaceMap, desired *offloading.NamespaceMapSpec) (bool, error) {
	held, err := c.findData(ctx, r, local, copied, desired.DesiredMapping)
	if err != nil || len(held.entries) == 0 {
		return false, err
	}
	if desired.DesiredMapping == nil {
		desired.DesiredMapping = map[string]string{}
	}
	maps.Copy(desired.DesiredMapping, held.entries)
	return true, nil
}

// keepData returns the entries that must be kept in the copy when the original is deleted.
func (c *Controller) keepData(ctx context.Context, local *offloading.NamespaceMap, r copies) (heldData, error) {
	copied, err := r.getCopy(ctx, local.Name)
	if err != nil || copied == nil || !r.isCopy(copied) {
		return heldData{}, err
	}
	return c.findData(ctx, r, local, copied, nil)
}

// heldData contains entries of a copy that are no longer desired but whose remote namespaces contain data.
type heldData struct {
	entries map[string]string
	volumes remotedata.Volumes // volumes of this cluster that represent the data
	claims  []string           // other claims with data, as NAMESPACE/NAME on the provider
}

// findData returns the entries of the copy that are no longer desired but are held by data. It reports them in Events
// about the map. If claims on the provider hold an entry, it also reports this in an Event about the entry's
// NamespaceOffloading.
func (c *Controller) findData(ctx context.Context, r copies, local, copied *offloading.NamespaceMap, desired map[string]string) (held heldData, err error) {
	var dropped []string
	for _, namespace := range slices.Sorted(maps.Keys(copied.Spec.DesiredMapping)) {
		if desired[namespace] != copied.Spec.DesiredMapping[namespace] {
			dropped = append(dropped, namespace)
		}
	}
	if len(dropped) == 0 {
		return held, nil
	}
	volumes, err := remotedata.List(ctx, c.live)
	if err != nil {
		return held, err
	}
	volumes = volumes.On(local.Labels[wire.RemoteIDLabel])
	held.entries = map[string]string{}
	for _, namespace := range dropped {
		nso, err := c.namespaceOffloading(ctx, namespace)
		if err != nil {
			return held, err
		}
		confirmed := remotedata.IsConfirmed(local, nso)
		remoteNamespace := copied.Spec.DesiredMapping[namespace]
		if data := volumes.In(namespace).Holding(confirmed); len(data) > 0 {
			held.entries[namespace], held.volumes = remoteNamespace, append(held.volumes, data...)
		}
		if confirmed {
			continue
		}
		claims, err := c.unknownClaims(ctx, r, namespace, remoteNamespace)
		if err != nil {
			return held, err
		}
		if len(claims) == 0 {
			continue
		}
		held.entries[namespace], held.claims = remoteNamespace, append(held.claims, claims...)
		if nso.Name != "" {
			c.report.Warn(nso, remotedata.HeldReason, replicateAction, fmt.Sprintf("namespace %s of provider %s is not deleted, because claims that were created there have data: %s. Delete these claims there, or %s",
				remoteNamespace, local.Name, listClaims(claims), remotedata.Annotate("NamespaceOffloading")))
		}
	}
	if len(held.entries) > 0 {
		c.report.Warn(local, remotedata.HeldReason, replicateAction, fmt.Sprintf("the namespaces %s of provider %s are not deleted, because they have the data of %s. To use them, offload their namespaces again; otherwise %s",
			strings.Join(slices.Sorted(maps.Values(held.entries)), ", "), local.Name, held, held.remedy()))
	}
	return held, nil
}

// String lists the volumes and claims.
func (h heldData) String() string {
	var parts []string
	if len(h.volumes) > 0 {
		parts = append(parts, "the volumes "+h.volumes.String())
	}
	if len(h.claims) > 0 {
		parts = append(parts, "claims that were created there: "+listClaims(h.claims))
	}
	return strings.Join(parts, ", and of ")
}

// remedy returns instructions for releasing the remote namespaces.
func (h heldData) remedy() string {
	var remedies []string
	if len(h.claims) > 0 {
		remedies = append(remedies, "delete these claims there, or "+remotedata.Annotate("NamespaceMap"))
	}
	if len(h.volumes) > 0 {
		remedies = append(remedies, h.volumes.Remedy(remotedata.Annotate("NamespaceMap")))
	}
	return strings.Join(remedies, "; ")
}

// maxNamedClaims is the maximum number of claims in an Event.
const maxNamedClaims = 8

func listClaims(claims []string) string {
	text := strings.Join(claims[:min(len(claims), maxNamedClaims)], ", ")
	if len(claims) > maxNamedClaims {
		text += ", and more"
	}
	return printable.Line(text)
}

// Limits for reading claims from a provider, because the provider determines their number and size.
const (
	claimsPage    = 5
	maxClaimPages = 400
)

// unknownClaims returns claims in a remote namespace that are bound to a volume of the provider and were not created by
// this cluster, as NAMESPACE/NAME. For example, operators create such claims for reflected custom resources. Claims of
// ephemeral volumes are omitted, because they are deleted with their pods. If this cluster may not list claims, none
// are returned. The same applies if the namespace in this cluster is gone or being deleted, because its user has then
// requested the deletion of all its contents. The result may be incomplete.
func (c *Controller) unknownClaims(ctx context.Context, r copies, namespace, remoteNamespace string) (claims []string, err error) {
	if gone, err := c.isGone(ctx, namespace); gone || err != nil {
		return nil, err
	}
	others, err := labels.NewRequirement(wire.OriginLabel, selection.NotEquals, []string{r.origin.String()})
	if err != nil {
		return nil, fmt.Errorf("selecting PersistentVolumeClaims, %w", err)
	}
	next := ""
	for range maxClaimPages {
		page := &corev1.PersistentVolumeClaimList{}
		err := r.List(ctx, page, client.InNamespace(remoteNamespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*others)}, client.Limit(claimsPage), client.Continue(next))
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, report.Errorf(report.Provider, "listing PersistentVolumeClaims of namespace %s on the provider, %w", remoteNamespace, err)
		}
		for i := range page.Items {
			if hasOwnData(&page.Items[i]) {
				claims = append(claims, remoteNamespace+"/"+page.Items[i].Name)
			}
		}
		if next = page.Continue; next == "" || len(claims) > maxNamedClaims {
			break
		}
	}
	return claims, nil
}

// hasOwnData reports whether a claim is bound, is not being deleted, and does not belong to an ephemeral volume.
func hasOwnData(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	isEphemeral := owner != nil && owner.Kind == "Pod" && owner.APIVersion == corev1.SchemeGroupVersion.String()
	return claim.Spec.VolumeName != "" && claim.DeletionTimestamp == nil && !isEphemeral
}

// isGone reports whether a namespace of this cluster does not exist or is being deleted.
func (c *Controller) isGone(ctx context.Context, name string) (bool, error) {
	namespace := &corev1.Namespace{}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting namespace %s, %w", name, err)
	}
	return err != nil || namespace.DeletionTimestamp != nil, nil
}

// namespaceOffloading returns the NamespaceOffloading of a namespace. It returns an empty object if there is none.
func (c *Controller) namespaceOffloading(ctx context.Context, namespace string) (*offloading.NamespaceOffloading, error) {
	nso := &offloading.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}
	if err := c.client.Get(ctx, key, nso); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting NamespaceOffloading %s, %w", key, err)
	}
	return nso, nil
}
