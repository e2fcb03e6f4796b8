// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// checkQuotas checks that the consumers of this cluster have Quotas. If Quotas are required, a consumer without a
// Quota gets no pods; otherwise it is not limited.
func (p *Examination) checkQuotas(ctx context.Context, _ *release.Installation) error {
	clusters := &core.ForeignClusterList{}
	if err := p.Client.List(ctx, clusters); err != nil {
		return err
	}
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		if role := cluster.Status.Role; role != core.ConsumerRole && role != core.ConsumerAndProviderRole {
			continue
		}
		quotas := &offloading.QuotaList{}
		tenant := cmp.Or(cluster.Status.TenantNamespace.Local, wire.TenantNamespace(string(cluster.Spec.ClusterID)))
		if err := p.Client.List(ctx, quotas, client.InNamespace(tenant)); err != nil {
			return fmt.Errorf("listing the Quotas in namespace %s, %w", tenant, err)
		}
		p.checkQuotasOf(string(cluster.Spec.ClusterID), tenant, quotas.Items)
	}
	return nil
}

func (p *Examination) checkQuotasOf(consumer, tenant string, quotas []offloading.Quota) {
	subject := "Quotas of consumer " + consumer
	if len(quotas) == 0 {
		p.addFinding(subject, Warning, "there are none in namespace %s: its pods are not limited, or, where Quotas are required (authentication.enabled), refused. Run refractctl peer or refractctl generate peering-user %s again; "+
			"if it joined with Liqo's protocol, see kubectl -n %s describe tenants.authentication.liqo.io,resourceslices.authentication.liqo.io", tenant, consumer, tenant)
		return
	}
	cordoned := 0
	for i := range quotas {
		if ptr.Deref(quotas[i].Spec.Cordoned, false) {
			cordoned++
			p.addFinding(subject, Warning, "Quota %s/%s is cordoned, so it admits no new pods: make it admit them with refractctl uncordon tenant %s, or uncordon resourceslice", tenant, quotas[i].Name, consumer)
		}
	}
	if cordoned == 0 {
		p.addFinding(subject, OK, "%d in namespace %s", len(quotas), tenant)
	}
}
