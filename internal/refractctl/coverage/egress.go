// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package coverage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// openedEgress returns a gap if policies restrict egress although the provider's own egress policy allows all pods to
// reach any outside address. Earlier versions of Refract created such a policy. NetworkPolicies are additive, so the
// restriction has no effect. If the provider does not respond, openedEgress returns no gap.
func (p *provider) openedEgress(ctx context.Context, namespace string, policies []networkingv1.NetworkPolicy) (gaps []string) {
	var names []string
	for i := range policies {
		if slices.Contains(policies[i].Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			names = append(names, policies[i].Name)
		}
	}
	if len(names) == 0 || p.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: p.remote, Name: wire.EgressNetworkPolicy}
	if err := p.client.Get(ctx, key, &networkingv1.NetworkPolicy{}); err != nil {
		return nil
	}
	isolation := client.ObjectKey{Namespace: p.remote, Name: wire.EgressIsolationPolicy}
	if err := p.client.Get(ctx, isolation, &networkingv1.NetworkPolicy{}); !apierrors.IsNotFound(err) {
		return nil
	}
	return []string{fmt.Sprintf("cluster %s: the egress rules of NetworkPolicies %s in namespace %s do not restrict egress there: its NetworkPolicy %s allows pods to reach all addresses that are not its own. Have its administrator upgrade Refract, or remove that policy for this cluster with the limit %s=false",
		p.id, strings.Join(names, ", "), namespace, key, tenantlimits.EgressPolicy.Name)}
}
