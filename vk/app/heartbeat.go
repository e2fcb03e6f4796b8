// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/heartbeat"
)

// sendHeartbeats sends heartbeats to the provider until ctx ends.
func (a *active) sendHeartbeats(ctx context.Context) {
	provider, err := kubernetes.NewForConfig(a.provider.Config())
	if err != nil {
		log.FromContext(ctx).Error(err, "No heartbeat is sent to the provider")
		return
	}
	heartbeat.Run(ctx, heartbeat.Options{
		ClusterID: a.HomeClusterID, Interval: a.HeartbeatInterval, Clock: clock.RealClock{},
		Leases: provider.CoordinationV1().Leases(a.tenant),
		Ready: func(ctx context.Context) error {
			return a.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		},
	})
}

// remoteTenantNamespace returns the tenant namespace on the provider. Its name is in an annotation of the Secret with
// the kubeconfig. Without the annotation, the default name is used.
func (a *active) remoteTenantNamespace(ctx context.Context) string {
	if a.kubeconfig != nil {
		secret, err := a.client.CoreV1().Secrets(a.TenantNamespace).Get(ctx, a.ForeignSecret, metav1.GetOptions{})
		if err == nil && secret.Annotations[wire.RemoteTenantNamespaceAnnotation] != "" {
			return secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
		}
	}
	return wire.TenantNamespace(a.HomeClusterID)
}
