// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/vk/heartbeat"
)

// sendHeartbeats lets the provider know that this cluster lives, until ctx ends.
func (a *active) sendHeartbeats(ctx context.Context) {
	provider, err := kubernetes.NewForConfig(a.provider.Config())
	if err != nil {
		log.FromContext(ctx).Error(err, "No heartbeat is sent to the provider")
		return
	}
	heartbeat.Run(ctx, heartbeat.Options{
		ClusterID: a.HomeClusterID, Interval: a.HeartbeatInterval, Clock: clock.RealClock{},
		Leases: provider.CoordinationV1().Leases(a.remoteTenantNamespace(ctx)),
		Ready: func(ctx context.Context) error {
			return a.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		},
	})
}
