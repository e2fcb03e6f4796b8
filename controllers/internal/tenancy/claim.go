// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/tenantlimits"
)

// checkClaims checks the PersistentVolumeClaims of ephemeral volumes. A controller of this cluster creates these claims
// with its own permissions, so the consumer's permissions do not apply.
func (c *podCheck) checkClaims() *Refusal {
	for i := range c.spec.Volumes {
		ephemeral := c.spec.Volumes[i].Ephemeral
		if ephemeral == nil || ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		check := claimCheck{limits: c.limits, namespace: c.namespace, claim: &ephemeral.VolumeClaimTemplate.Spec,
			field: "volumes[" + c.spec.Volumes[i].Name + "].ephemeral.volumeClaimTemplate.spec."}
		if refusal := check.firstRefusal(); refusal != nil {
			return refusal
		}
	}
	return nil
}

// claimCheck checks a claim's spec against the limits of its consumer. The chart's admission policies enforce the same
// rules.
type claimCheck struct {
	limits    tenantlimits.Limits
	namespace string
	claim     *corev1.PersistentVolumeClaimSpec
	field     string // path of the claim's spec in the pod's spec, followed by a dot
}

// firstRefusal returns the first violation of the limits, or nil if the claim is allowed.
func (c *claimCheck) firstRefusal() *Refusal {
	for _, check := range []func() *Refusal{c.checkVolume, c.checkClass, c.checkSource, c.checkAttributes, c.checkSize} {
		if refusal := check(); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (c *claimCheck) refuseField(field string, setting *tenantlimits.Setting, rule string, args ...any) *Refusal {
	return refuseField(c.field+field, setting, rule, args...)
}

func (c *claimCheck) checkVolume() *Refusal {
	switch {
	case c.claim.VolumeName != "":
		return &Refusal{podField + c.field + "volumeName", "this cluster chooses the volume", "omit the field"}
	case c.claim.Selector != nil:
		return &Refusal{podField + c.field + "selector", "it selects volumes that exist in this cluster", "omit the field"}
	}
	return nil
}

// checkClass checks the StorageClass of a claim. The empty class is refused, because such a claim would bind existing
// volumes that were created for another purpose. A claim without a class gets the default class of this cluster, which
// only the admission policy for claims can check. If no class at all is allowed, the default class is refused, too.
func (c *claimCheck) checkClass() *Refusal {
	switch class := c.claim.StorageClassName; {
	case class == nil && len(c.limits.List(tenantlimits.StorageClasses)) == 0:
		return c.refuseField("storageClassName", tenantlimits.StorageClasses, "the default storage class is not allowed for consumers")
	case class != nil && (*class == "" || !c.limits.Matches(tenantlimits.StorageClasses, *class)):
		return c.refuseField("storageClassName", tenantlimits.StorageClasses, "storage class %q is not allowed for consumers", *class)
	}
	return nil
}

func (c *claimCheck) checkSource() *Refusal {
	reference := c.claim.DataSourceRef
	if reference != nil && reference.Namespace != nil && *reference.Namespace != "" && *reference.Namespace != c.namespace {
		return &Refusal{podField + c.field + "dataSourceRef", "consumers must not read data of another namespace", "omit the field"}
	}
	if (c.claim.DataSource != nil || reference != nil) && !c.limits.Enabled(tenantlimits.ClaimDataSources) {
		return c.refuseField("dataSource", tenantlimits.ClaimDataSources, "data sources are not allowed for consumers")
	}
	return nil
}

func (c *claimCheck) checkAttributes() *Refusal {
	if class := c.claim.VolumeAttributesClassName; class != nil && *class != "" && !c.limits.Matches(tenantlimits.VolumeAttributesClasses, *class) {
		return c.refuseField("volumeAttributesClassName", tenantlimits.VolumeAttributesClasses, "volume attributes class %q is not allowed for consumers", *class)
	}
	return nil
}

func (c *claimCheck) checkSize() *Refusal {
	size := c.claim.Resources.Requests[corev1.ResourceStorage]
	if limit, limited := c.limits.Quantity(tenantlimits.MaxClaimSize); limited && size.Cmp(limit) > 0 {
		return c.refuseField("resources.requests[storage]", tenantlimits.MaxClaimSize, "%s is more than the maximum of %s", size.String(), limit.String())
	}
	return nil
}
