// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/tenantlimits"
)

// checkEphemeralVolumes returns a Refusal if the limits do not allow the claim of an ephemeral volume of the pod.
func checkEphemeralVolumes(limits tenantlimits.Limits, namespace string, pod *corev1.PodSpec) *Refusal {
	for i := range pod.Volumes {
		if ephemeral := pod.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil {
			field := fmt.Sprintf("%svolumes[%d].ephemeral.volumeClaimTemplate.spec.", podField, i)
			if refusal := checkClaim(limits, namespace, field, &ephemeral.VolumeClaimTemplate.Spec); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// checkClaim returns a Refusal if the claim of an ephemeral volume is not allowed. A controller of this cluster creates it, with that
// controller's rights. field is the path of the spec, with a dot.
func checkClaim(limits tenantlimits.Limits, namespace, field string, claim *corev1.PersistentVolumeClaimSpec) *Refusal {
	const omit = "omit the field"
	switch {
	case claim.VolumeName != "":
		return &Refusal{field + "volumeName", "this cluster chooses the volume", omit}
	case claim.Selector != nil:
		return &Refusal{field + "selector", "it selects volumes that exist in this cluster", omit}
	case !mayHaveClass(limits, claim.StorageClassName):
		class := "the default storage class"
		if claim.StorageClassName != nil {
			class = fmt.Sprintf("storage class %q", *claim.StorageClassName)
		}
		return &Refusal{field + "storageClassName", class + " is not allowed for consumers", limitRemedy(tenantlimits.StorageClasses)}
	case claim.DataSourceRef != nil && claim.DataSourceRef.Namespace != nil && *claim.DataSourceRef.Namespace != "" && *claim.DataSourceRef.Namespace != namespace:
		return &Refusal{field + "dataSourceRef", "data of another namespace is not allowed for consumers", omit}
	case (claim.DataSource != nil || claim.DataSourceRef != nil) && !limits.Enabled(tenantlimits.ClaimDataSources):
		return &Refusal{field + "dataSource", "data sources are not allowed for consumers", limitRemedy(tenantlimits.ClaimDataSources)}
	case claim.VolumeAttributesClassName != nil && *claim.VolumeAttributesClassName != "" && !limits.Matches(tenantlimits.VolumeAttributesClasses, *claim.VolumeAttributesClassName):
		return &Refusal{field + "volumeAttributesClassName", fmt.Sprintf("volume attributes class %q is not allowed for consumers", *claim.VolumeAttributesClassName), limitRemedy(tenantlimits.VolumeAttributesClasses)}
	}
	return checkSize(limits, field, claim.Resources.Requests[corev1.ResourceStorage])
}

// mayHaveClass reports whether a claim may have the class. Without one it gets the default class of this cluster, which only the policy for
// claims knows; where no class is allowed, that one is not either. With the empty class, a claim binds volumes that somebody has created for another purpose.
func mayHaveClass(limits tenantlimits.Limits, class *string) bool {
	if class == nil {
		return len(limits.List(tenantlimits.StorageClasses)) > 0
	}
	return *class != "" && limits.Matches(tenantlimits.StorageClasses, *class)
}

func checkSize(limits tenantlimits.Limits, field string, size resource.Quantity) *Refusal {
	limit, limited := limits.Quantity(tenantlimits.MaxClaimSize)
	if limited && size.Cmp(limit) > 0 {
		return &Refusal{field + "resources.requests[storage]", fmt.Sprintf("%s is more than %s, the maximum for consumers", size.String(), limit.String()), limitRemedy(tenantlimits.MaxClaimSize)}
	}
	return nil
}
