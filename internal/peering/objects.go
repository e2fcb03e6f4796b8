// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// secretName returns the name of the Secret with the kubeconfig for a provider. It is the same as in Liqo.
func secretName(provider string) string { return "kubeconfig-controlplane-" + provider }

// user returns the name of the user as which a consumer authenticates at its providers. Its group is also the ID of
// the cluster.
func user(consumer string) string { return consumer }

// sharedRoles returns the names of the chart's ClusterRoles that the bindings of a peering refer to.
func sharedRoles(prefix string) []string {
	var names []string
	for _, role := range []rbac.Role{rbac.VirtualKubeletLocal(), rbac.VirtualKubeletExtended(), rbac.VirtualKubeletRemote(), rbac.VirtualKubeletRemoteClusterwide(), rbac.RemoteControlPlane()} {
		names = append(names, role.Named(prefix))
	}
	return names
}

// ownRoles returns the objects that the chart does not create, with the labels of this program.
func ownRoles(prefix string, labels map[string]string, objects []rbac.Object) []client.Object {
	shared := sharedRoles(prefix)
	var own []client.Object
	for _, object := range objects {
		if _, is := object.(*rbacv1.ClusterRole); is && slices.Contains(shared, object.GetName()) {
			continue
		}
		object.SetLabels(meta("", "", labels).Labels)
		own = append(own, object)
	}
	return own
}

// access returns the account of a consumer on its provider, and its permissions.
func (o *Options) access() []client.Object {
	consumer, prefix := o.Consumer.ID(), o.Provider.installation.RolePrefix
	access := rbac.Peer(prefix, consumer)
	return append([]client.Object{o.account()}, ownRoles(prefix, nil, append(access.Objects(), access.TenantNamespace(wire.TenantNamespace(consumer))))...)
}

// quota returns the Quota of the consumer on the provider.
func (o *Options) quota(resources corev1.ResourceList) *offloading.Quota {
	consumer := o.Consumer.ID()
	return &offloading.Quota{ObjectMeta: meta(wire.TenantNamespace(consumer), user(consumer), nil),
		Spec: offloading.QuotaSpec{User: user(consumer), LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: resources}}
}

// atConsumer returns the objects that a virtual node needs, except the tenant namespace, the Secrets and the
// VirtualNode.
func (o *Options) atConsumer() []client.Object {
	prefix, tenant := o.Consumer.installation.RolePrefix, wire.TenantNamespace(o.Provider.ID())
	// The controller manager needs the permissions to the first Secret for all virtual nodes of the provider.
	return append(o.ofNode(), ownRoles(prefix, nil, o.Consumer.manager().Provider(tenant, secretName(o.Provider.ID())))...)
}

// ofNode returns the objects of atConsumer that belong to one virtual node alone.
func (o *Options) ofNode() []client.Object {
	prefix, tenant := o.Consumer.installation.RolePrefix, wire.TenantNamespace(o.Provider.ID())
	secret, name := o.nodeSecret(), o.VirtualNode
	// The controller manager deletes the objects with this label together with the VirtualNode.
	ofNode := map[string]string{wire.VirtualNodeLabel: name}
	kubelet := rbac.Kubelet{Prefix: prefix, NodeName: name, TenantNamespace: tenant, KubeconfigSecret: secret, Subject: rbac.ServiceAccount(tenant, name)}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: meta(tenant, name, ofNode)}}
	objects = append(objects, ownRoles(prefix, ofNode, kubelet.Objects())...)
	if o.Provider.liqo {
		objects = append(objects, ownRoles(prefix, ofNode, o.Consumer.manager().Provider(tenant, secret))...)
	}
	return objects
}

// besides returns the objects for the virtual kubelet that are owned by its VirtualNode.
func (o *Options) besides(vn client.Object) []client.Object {
	tenant, name := wire.TenantNamespace(o.Provider.ID()), o.VirtualNode
	object := meta(tenant, "vk-"+name, map[string]string{wire.VirtualNodeLabel: name})
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: offloading.GroupVersion.String(), Kind: offloading.VirtualNodeKind, Name: vn.GetName(), UID: vn.GetUID()}}
	pods := metav1.LabelSelector{MatchLabels: map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: name}}
	objects := []client.Object{&policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &pods}}}
	// On a provider that runs Liqo, the virtual kubelet of each node has its own kubeconfig.
	if len(o.nodeAccess) > 0 {
		secret := o.ofVirtualKubelet()
		secret.OwnerReferences = object.OwnerReferences
		objects = append(objects, secret)
	}
	if !o.Consumer.installation.Isolates {
		return objects
	}
	served := networkingv1.NetworkPolicyIngressRule{}
	for _, port := range []string{"kubelet", "health", "metrics"} {
		served.Ports = append(served.Ports, networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromString(port))})
	}
	return append(objects, &networkingv1.NetworkPolicy{ObjectMeta: object, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: pods, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{served},
	}})
}

// makeNode creates the virtual node and all objects that its virtual kubelet needs.
func (o *Options) makeNode(ctx context.Context) error {
	o.say("%s: making virtual node %s", o.Consumer.ID(), o.VirtualNode)
	if err := o.Consumer.takeUp(ctx, o.Provider.ID()); err != nil {
		return err
	}
	desired, err := o.virtualNode(ctx)
	if err != nil {
		return err
	}
	if err := o.Consumer.applyAll(ctx, slices.Concat(o.atConsumer(), o.copiedPullSecrets(), []client.Object{desired})); err != nil {
		return err
	}
	vn := &offloading.VirtualNode{}
	if err := o.Consumer.Client.Get(ctx, client.ObjectKeyFromObject(desired), vn); err != nil {
		return fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, client.ObjectKeyFromObject(desired), err)
	}
	return o.Consumer.applyAll(ctx, o.besides(vn))
}

// unchecked returns true if the network is not part of the node's readiness, and nil if the setting of the
// installation applies.
func (o *Options) unchecked() *bool {
	if o.network == plugins.NoNetwork {
		return ptr.To(true)
	}
	return nil
}

// nodeAnnotations returns the annotations that configure the virtual kubelet for the known network and pod ranges.
func (o *Options) nodeAnnotations() map[string]string {
	annotations := map[string]string{}
	if o.network == plugins.NoNetwork {
		annotations[wire.AddressesAnnotation] = "false"
	}
	if len(o.ProviderRanges) > 0 {
		ranges := make([]string, len(o.ProviderRanges))
		for i, prefix := range o.ProviderRanges {
			ranges[i] = prefix.String()
		}
		annotations[wire.RangesAnnotation] = strings.Join(ranges, ",")
	}
	return annotations
}

func (o *Options) secret(kubeconfig []byte) *corev1.Secret {
	object := meta(wire.TenantNamespace(o.Provider.ID()), secretName(o.Provider.ID()), map[string]string{wire.RemoteClusterIDLabel: o.Provider.ID()})
	object.Annotations = map[string]string{wire.RemoteTenantNamespaceAnnotation: wire.TenantNamespace(o.Consumer.ID())}
	if o.APIServerURL != "" {
		object.Annotations[wire.APIServerURLAnnotation] = o.APIServerURL
	}
	if o.renews {
		object.Annotations[wire.RenewedAnnotation] = "true"
	}
	return &corev1.Secret{ObjectMeta: object, Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}}
}

// virtualNode returns a VirtualNode whose virtual kubelet is scheduled like the controller manager. Only fields that
// it needs are set, because our CRD stores the template of its Deployment without a schema.
func (o *Options) virtualNode(ctx context.Context) (*unstructured.Unstructured, error) {
	provider := o.Provider.ID()
	node := &offloading.VirtualNode{
		ObjectMeta: meta(wire.TenantNamespace(provider), o.VirtualNode, map[string]string{wire.RemoteClusterIDLabel: provider}),
		Spec: offloading.VirtualNodeSpec{
			ClusterID: core.ClusterID(provider), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: o.nodeSecret()},
			DisableNetworkCheck: o.unchecked(), ResourceQuota: corev1.ResourceQuotaSpec{Hard: o.Resources}, Labels: o.Node.Labels, OffloadingPatch: o.Node.patch(),
			StorageClasses: o.Node.StorageClasses, IngressClasses: o.Node.IngressClasses, LoadBalancerClasses: o.Node.LoadBalancerClasses,
		},
	}
	node.Annotations = o.nodeAnnotations()
	if o.Provider.liqo {
		o.recordAccepted(node)
	} else if err := o.negotiated(ctx, node); err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		return nil, fmt.Errorf("encoding VirtualNode %s, %w", o.VirtualNode, err)
	}
	scheduling, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.Consumer.installation.Scheduling)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of VirtualNode %s, %w", o.VirtualNode, err)
	}
	// ToUnstructured writes the missing containers as null.
	delete(scheduling, "containers")
	if len(scheduling) > 0 {
		// The CRD of Liqo, which may still be installed, requires a container and a selector. The controller manager merges
		// both into its own.
		scheduling["containers"] = []any{map[string]any{"name": "virtual-kubelet"}}
		template := map[string]any{"spec": map[string]any{"selector": map[string]any{}, "template": map[string]any{"spec": scheduling}}}
		if err := unstructured.SetNestedMap(fields, template, "spec", "template"); err != nil {
			return nil, fmt.Errorf("encoding the template of VirtualNode %s, %w", o.VirtualNode, err)
		}
	}
	vn := &unstructured.Unstructured{Object: fields}
	vn.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	return vn, nil
}
