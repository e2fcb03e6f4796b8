// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// clearStatuses removes the addresses that providers have reported from the Services and Ingresses of the namespace,
// because nothing listens at these addresses any more. This is not left to the virtual kubelet, because it may be down
// or have no access to the namespace any more. Addresses that a controller of this cluster has written have no mark of
// a provider, and are kept.
func (c *Controller) clearStatuses(ctx context.Context, namespace string, of func(provider string) bool) error {
	services, ingresses := &corev1.ServiceList{}, &networkingv1.IngressList{}
	for _, list := range []client.ObjectList{services, ingresses} {
		if err := c.uncached.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("listing objects with addresses of providers in namespace %s, %w", namespace, err)
		}
	}
	var problems []error
	for i := range services.Items {
		problems = append(problems, c.clearStatus(ctx, &services.Items[i], of))
	}
	for i := range ingresses.Items {
		problems = append(problems, c.clearStatus(ctx, &ingresses.Items[i], of))
	}
	return errors.Join(problems...)
}

func (c *Controller) clearStatus(ctx context.Context, object client.Object, of func(provider string) bool) error {
	from := object.GetAnnotations()[wire.StatusFromAnnotation]
	if from == "" || from == c.options.ClusterID.String() || !of(from) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": object.GetResourceVersion(),
			"annotations":     map[string]any{wire.StatusFromAnnotation: nil, wire.StatusHashAnnotation: nil},
		},
		"status": map[string]any{"loadBalancer": map[string]any{"ingress": nil}},
	})
	if err != nil {
		return fmt.Errorf("encoding patch, %w", err)
	}
	err = c.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("clearing the status of %s %s, %w", object.GetName(), object.GetNamespace(), err)
	}
	return nil
}

// errStatusesLeft is returned if some statuses still contain addresses of a provider.
var errStatusesLeft = errors.New("statuses were not cleared")

// clearStatusesOf removes the addresses that one provider has reported.
func (c *Controller) clearStatusesOf(ctx context.Context, namespace, provider string) error {
	err := c.clearStatuses(ctx, namespace, func(from string) bool { return from == provider })
	if err == nil {
		return nil
	}
	return errors.Join(errStatusesLeft, err)
}

// removedProviders returns the IDs of the providers that are in the status of nso but have neither a virtual node nor a
// NamespaceMap any more.
func removedProviders(nso *offloading.NamespaceOffloading, providers []*provider) (ids []string) {
	for id, conditions := range nso.Status.RemoteNamespacesConditions {
		wasThere := slices.ContainsFunc(conditions, func(c offloading.RemoteNamespaceCondition) bool { return c.Type == offloading.NamespaceReady })
		if wasThere && !slices.ContainsFunc(providers, func(p *provider) bool { return p.id == id }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// hasLeft reports whether the provider has deleted the remote namespace since the status was written.
func (p *provider) hasLeft(nso *offloading.NamespaceOffloading) bool {
	if p.isMapped(nso.Namespace) {
		return false
	}
	for _, condition := range nso.Status.RemoteNamespacesConditions[p.id] {
		if condition.Type == offloading.NamespaceReady {
			return true
		}
	}
	return false
}
