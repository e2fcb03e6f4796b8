// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// kind describes the objects of one kind that the benchmark creates: their content, their number, and the permitted
// number of writes.
type kind struct {
	name           string
	prefix         string // prefix of the objects' names; if it is "", the name of the kind is used
	source, target schema.GroupVersionResource
	count          int
	content        map[string]any // content of each object, in addition to its name and labels
	// back is true if the objects are created on the provider and copied to the consumer.
	back bool
	// plain is the cluster in which the objects are created in a namespace that is not offloaded. Such objects count
	// as their own copies. If it is nil, the objects are reflected.
	plain *lab.Side
	// onCreation and onChange are the permitted numbers of writes for one object, by all processes of Refract. They
	// include the writes of the provider's controllers for the copy.
	onCreation, onChange float64
	// change returns the patch of a change. If it is nil, a label is changed.
	change func(value string) string
}

// few is the number of objects of a kind that costs as much per object as another kind, which is measured with more
// objects.
const few = 100

var services = corev1.SchemeGroupVersion.WithResource("services")

// kinds returns the reflected kinds. The first one is the Service, and the second one the ConfigMap.
func (b *bench) kinds() []*kind {
	core := corev1.SchemeGroupVersion.WithResource
	few := min(few, b.services)
	ports := []any{map[string]any{"name": "http", "port": int64(80)}}
	backend := map[string]any{"service": map[string]any{"name": "service-0000", "port": map[string]any{"name": "http"}}}
	endpoint := map[string]any{"addresses": []any{"10.244.250.1"}, "conditions": map[string]any{"ready": true}, "nodeName": "home-kwok-0"}
	return []*kind{
		{name: "Service", source: services, count: b.services, onCreation: 1, onChange: 1,
			content: map[string]any{"spec": map[string]any{"ports": ports}}},
		{name: "ConfigMap", source: core("configmaps"), count: b.services, onCreation: 1, onChange: 1,
			content: map[string]any{"data": map[string]any{"mode": "fast"}}},
		{name: "Secret", source: core("secrets"), count: b.services, onCreation: 1, onChange: 1,
			content: map[string]any{"stringData": map[string]any{"key": "value"}}},
		{name: "Ingress", source: networkingv1.SchemeGroupVersion.WithResource("ingresses"), count: few, onCreation: 1, onChange: 1,
			content: map[string]any{"spec": map[string]any{"defaultBackend": backend}}},
		{name: "NetworkPolicy", source: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), count: few, onCreation: 1, onChange: 1,
			content: map[string]any{"spec": map[string]any{"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}}}},
		{name: "PodDisruptionBudget", source: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), count: few, onCreation: 1, onChange: 1,
			content: map[string]any{"spec": map[string]any{"maxUnavailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "none"}}}}},
		{name: "EndpointSlice", source: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), target: offloadingv1beta1.ShadowEndpointSliceGVR,
			count: few, onCreation: 2, onChange: 2, // the writes to the ShadowEndpointSlice and to the provider's EndpointSlice
			content: map[string]any{"addressType": "IPv4", "endpoints": []any{endpoint}, "ports": ports}},
		// Two objects are created: the claim, and the volume for the claim on the consumer.
		{name: "PersistentVolumeClaim", source: core("persistentvolumeclaims"), count: few, onCreation: 2, onChange: 1,
			content: claim()},
		{name: "Widget", source: schema.GroupVersionResource{Group: "bench.example.org", Version: "v1", Resource: "widgets"}, count: few, onCreation: 1, onChange: 1,
			content: map[string]any{"spec": map[string]any{"size": int64(3)}}},
		b.eventKind(few),
	}
}

// claim returns a claim of the virtual storage class for a pod that was scheduled to the virtual node.
func claim() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{wire.SelectedNodeAnnotation: lab.NodeName}},
		"spec": map[string]any{"storageClassName": wire.DefaultStorageClass, "accessModes": []any{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
	}
}

// volumes creates the volumes to which the provider's claims are bound. Without them, Kubernetes would repeatedly write
// Events about the claims.
func (b *bench) volumes(ctx context.Context) error {
	for i := range min(few, b.services) + 2*missed {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", lab.RemoteStorageClass, i)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: lab.RemoteStorageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			},
		}
		if _, err := b.Provider.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// eventKind returns the kind of Events that the provider writes about copies, and that are reflected to the consumer.
func (b *bench) eventKind(count int) *kind {
	lasting := fmt.Sprintf("service-%04d", b.services-1) // this Service is never deleted
	about := map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": remoteNamespace, "name": lasting}
	return &kind{name: "Event", source: corev1.SchemeGroupVersion.WithResource("events"), count: count, onCreation: 1, onChange: 1, back: true,
		content: map[string]any{"involvedObject": about, "reason": "Measured", "message": "about a copy", "type": "Warning", "count": int64(1)},
		change:  func(value string) string { return fmt.Sprintf(`{"message":%q}`, value) }}
}

func (k *kind) copies() schema.GroupVersionResource {
	if k.target.Resource != "" {
		return k.target
	}
	return k.source
}

func (k *kind) object(i int) string {
	return fmt.Sprintf("%s-%04d", strings.ToLower(cmp.Or(k.prefix, k.name)), i)
}

//go:embed cluster
var manifests embed.FS

// apply applies a file of the folder cluster to a cluster.
func (b *bench) apply(ctx context.Context, cluster, name string) error {
	content, err := manifests.ReadFile("cluster/" + name)
	if err != nil {
		return err
	}
	return b.Apply(ctx, cluster, content)
}
