// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// flipSlices is the number of EndpointSlices, and flipEndpoints is the number of endpoints in each. Together they are a
// thousand endpoints, in slices of the size that Kubernetes uses.
const flipSlices, flipEndpoints = 10, 100

// flips measures the delay between a change in the state of the network to the consumer and the resulting change in the
// readiness of the consumer's endpoints on the provider.
func (b *bench) flips(ctx context.Context) error {
	progress("%d endpoints that become unready together, and ready", flipSlices*flipEndpoints)
	slices := b.flipping()
	if err := b.each(ctx, slices, 0, slices.count, b.create); err != nil {
		return err
	}
	if err := b.awaitReadiness(ctx, true); err != nil {
		return err
	}
	for _, flip := range []struct {
		status string
		ready  bool
		what   string
	}{{"Error", false, "unready"}, {"Established", true, "ready again"}} {
		took, err := b.flip(ctx, flip.status, flip.ready)
		if err != nil {
			return err
		}
		b.atMostTime(fmt.Sprintf("%d endpoints are %s after the condition of their cluster changed", flipSlices*flipEndpoints, flip.what), took.Seconds(), 1, " s")
	}
	if err := b.each(ctx, slices, 0, slices.count, b.delete); err != nil {
		return err
	}
	_, err := b.settled(ctx)
	return err
}

// flipping returns the kind of the EndpointSlices that flips creates.
func (b *bench) flipping() *kind {
	endpoints := make([]any, 0, flipEndpoints)
	for i := range flipEndpoints {
		endpoints = append(endpoints, map[string]any{"addresses": []any{fmt.Sprintf("10.244.251.%d", i+1)}, "conditions": map[string]any{"ready": true}, "nodeName": "home-kwok-0"})
	}
	return &kind{name: "EndpointSlice", prefix: "flip", source: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), count: flipSlices,
		content: map[string]any{"addressType": "IPv4", "endpoints": endpoints, "ports": []any{map[string]any{"name": "http", "port": int64(80)}}}}
}

// flip sets, on the provider, the state of the network to the consumer. It returns the delay between the change of the
// condition and the change of the last endpoint.
func (b *bench) flip(ctx context.Context, status string, ready bool) (time.Duration, error) {
	clusters := b.Provider.Dynamic.Resource(corev1beta1.ForeignClusterGVR)
	watch, err := clusters.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lab.ConsumerID})
	if err != nil {
		return 0, err
	}
	defer watch.Stop()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wire.NetworkStatusAnnotation, status)
	if _, err := clusters.Patch(ctx, lab.ConsumerID, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return 0, err
	}
	for event := range watch.ResultChan() {
		if object, ok := event.Object.(*unstructured.Unstructured); ok && networkStatus(object) == status {
			begun := time.Now()
			err := b.awaitReadiness(ctx, ready)
			return time.Since(begun), err
		}
	}
	return 0, fmt.Errorf("the watch of ForeignCluster %s ended before its condition changed", lab.ConsumerID)
}

func networkStatus(cluster *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == string(corev1beta1.NetworkStatusCondition) {
			return fmt.Sprint(fields["status"])
		}
	}
	return ""
}

// awaitReadiness waits until all endpoints on the provider are ready or, if ready is false, until none is.
func (b *bench) awaitReadiness(ctx context.Context, ready bool) error {
	return b.Wait(ctx, fmt.Sprintf("%d endpoints with ready: %t", flipSlices*flipEndpoints, ready), func(ctx context.Context) (string, error) {
		list, err := b.Provider.Client.DiscoveryV1().EndpointSlices(remoteNamespace).List(ctx, metav1.ListOptions{LabelSelector: label + "=yes"})
		if err != nil {
			return "", err
		}
		found := 0
		for i := range list.Items {
			for _, endpoint := range list.Items[i].Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready == ready {
					found++
				}
			}
		}
		if found < flipSlices*flipEndpoints {
			return fmt.Sprintf("there are %d", found), nil
		}
		return "", nil
	})
}
