// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/internal/homeaddress"
)

// homeKinds returns cache options for the kinds in desired.HomeObjects. Only the pods of consumers on this node are cached, and only
// some fields of all objects.
func homeKinds(node string) map[client.Object]cache.ByObject {
	remote, err := labels.NewRequirement(wire.RemoteClusterIDLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the requirement is constant, so this cannot fail
	}
	slice, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.Exists, nil)
	if err != nil {
		panic(err)
	}
	return map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Label: labels.NewSelector().Add(*remote), Transform: shrinkHomeNamespace},
		&corev1.Pod{}: {
			Label: labels.SelectorFromSet(labels.Set{wire.ManagedByLabel: wire.ManagedByShadowPod}),
			Field: fields.OneTermEqualSelector("spec.nodeName", node), Transform: shrinkHomePod,
		},
		&corev1.Service{}:            {Transform: shrinkHomeService},
		&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*slice), Transform: shrinkHomeSlice},
	}
}

func shrinkHomeNamespace(object any) (any, error) {
	n, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	small := &corev1.Namespace{}
	small.Name, small.UID, small.ResourceVersion = n.Name, n.UID, n.ResourceVersion
	small.Labels = map[string]string{wire.RemoteClusterIDLabel: n.Labels[wire.RemoteClusterIDLabel]}
	small.Annotations = map[string]string{wire.ManagedByNamespaceMapAnnotation: n.Annotations[wire.ManagedByNamespaceMapAnnotation]}
	return small, nil
}

func shrinkHomePod(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		return homeaddress.ShrinkPod(p), nil
	}
	return object, nil
}

func shrinkHomeService(object any) (any, error) {
	if s, ok := object.(*corev1.Service); ok {
		return homeaddress.ShrinkService(s), nil
	}
	return object, nil
}

func shrinkHomeSlice(object any) (any, error) {
	s, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	small := &discoveryv1.EndpointSlice{AddressType: s.AddressType, Ports: s.Ports}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
	small.Labels = map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName]}
	for _, e := range s.Endpoints {
		kept := discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName}
		small.Endpoints = append(small.Endpoints, kept)
	}
	return small, nil
}

// buildHome builds what this node translates for the pods of consumers. It returns nil if no consumer's addresses are translated.
func (a *agent) buildHome(ctx context.Context) (*desired.Home, error) {
	if len(a.options.homeAddressesOf) == 0 {
		return nil, nil
	}
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	var services corev1.ServiceList
	var endpointSlices discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&namespaces, &pods, &services, &endpointSlices} {
		if err := a.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T, %w", list, err)
		}
	}
	home := desired.HomeObjects{Node: a.options.node, Consumers: a.options.homeAddressesOf, Namespaces: namespaces.Items,
		Pods: pods.Items, Services: services.Items, Slices: endpointSlices.Items}.Compile()
	a.reporter.homePorts.Set(float64(len(home.Ports)))
	a.reporter.homePods.Set(float64(len(home.Pods)))
	return home, nil
}

// validateConsumers returns an error for IDs of consumers that no cluster can have.
func validateConsumers(ids []string) error {
	var errs []error
	for _, id := range ids {
		if err := core.ClusterID(id).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--home-addresses-of: %w", err))
		}
	}
	return errors.Join(errs...)
}
