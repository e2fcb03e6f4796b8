// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// NodeOptions are the settings of a virtual node except for its resources.
type NodeOptions struct {
	// Labels are the labels of the Node.
	Labels map[string]string
	// NodeSelector and RuntimeClass apply to the virtual node's pods on the provider.
	NodeSelector map[string]string
	RuntimeClass string
	// StorageClasses, IngressClasses and LoadBalancerClasses are the classes of the provider that the node offers.
	StorageClasses      []offloading.StorageType
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
}

func (n *NodeOptions) patch() *offloading.OffloadingPatch {
	if len(n.NodeSelector) == 0 && n.RuntimeClass == "" {
		return nil
	}
	patch := &offloading.OffloadingPatch{NodeSelector: n.NodeSelector}
	if n.RuntimeClass != "" {
		patch.RuntimeClassName = &n.RuntimeClass
	}
	return patch
}

// explicit returns the fields that the user has set.
func (n *NodeOptions) explicit() (fields []negotiation.Field) {
	if len(n.StorageClasses) > 0 {
		fields = append(fields, negotiation.StorageClasses)
	}
	if len(n.IngressClasses) > 0 {
		fields = append(fields, negotiation.IngressClasses)
	}
	if len(n.LoadBalancerClasses) > 0 {
		fields = append(fields, negotiation.LoadBalancerClasses)
	}
	if len(n.Labels) > 0 {
		fields = append(fields, negotiation.Labels)
	}
	return fields
}

// nodeObjects creates the objects that one virtual node needs on the consumer.
type nodeObjects struct {
	*pair
	// name is the name of the virtual node. secretName is the name of the Secret with the kubeconfig for its virtual
	// kubelet.
	name, secretName string
}

// objectsOfNode returns the nodeObjects of the virtual node. On a provider that runs Liqo, the virtual kubelet and the
// controllers are different users.
func (p *pair) objectsOfNode(name string) nodeObjects {
	if p.provider.RunsLiqo {
		return nodeObjects{p, name, "kubeconfig-resourceslice-" + name}
	}
	return nodeObjects{p, name, identity.SecretName(p.provider.ID())}
}

func (n nodeObjects) namespace() string { return wire.TenantNamespace(n.provider.ID()) }

// all returns the objects that a virtual node needs, except the tenant namespace, the Secrets, the VirtualNode and the
// objects that the VirtualNode owns.
func (n nodeObjects) all() []client.Object {
	// This Secret is used for all virtual nodes of the provider, so the controller manager needs permissions for it.
	return append(n.own(), tenant.OwnRoles(n.consumer.Installation.RolePrefix, nil, n.consumer.Manager().Provider(n.namespace(), identity.SecretName(n.provider.ID())))...)
}

// own returns the objects that belong only to this virtual node.
func (n nodeObjects) own() []client.Object {
	prefix, namespace := n.consumer.Installation.RolePrefix, n.namespace()
	// The controller manager deletes the objects with this label together with the VirtualNode.
	ofNode := map[string]string{wire.VirtualNodeLabel: n.name}
	kubelet := rbac.Kubelet{Prefix: prefix, NodeName: n.name, TenantNamespace: namespace, KubeconfigSecret: n.secretName, Subject: rbac.ServiceAccount(namespace, n.name)}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: cluster.Meta(namespace, n.name, ofNode)}}
	objects = append(objects, tenant.OwnRoles(prefix, ofNode, kubelet.Objects())...)
	if n.provider.RunsLiqo {
		objects = append(objects, tenant.OwnRoles(prefix, ofNode, n.consumer.Manager().Provider(namespace, n.secretName))...)
	}
	return objects
}

// owned returns the objects for the virtual kubelet that its VirtualNode owns. secret is the Secret with a separate
// kubeconfig for the virtual kubelet, or nil.
func (n nodeObjects) owned(vn client.Object, secret *corev1.Secret) []client.Object {
	object := cluster.Meta(n.namespace(), "vk-"+n.name, map[string]string{wire.VirtualNodeLabel: n.name})
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: offloading.GroupVersion.String(), Kind: offloading.VirtualNodeKind, Name: vn.GetName(), UID: vn.GetUID()}}
	pods := metav1.LabelSelector{MatchLabels: map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: n.name}}
	objects := []client.Object{&policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &pods}}}
	if secret != nil {
		secret = secret.DeepCopy()
		secret.OwnerReferences = object.OwnerReferences
		objects = append(objects, secret)
	}
	if !n.consumer.Installation.Isolates {
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

// accessSecret returns the Secret with the kubeconfig for the provider. server is the address of the provider as the
// user has set it.
func (p *pair) accessSecret(server string, kubeconfig []byte, renews bool) *corev1.Secret {
	object := cluster.Meta(wire.TenantNamespace(p.provider.ID()), identity.SecretName(p.provider.ID()), map[string]string{wire.RemoteClusterIDLabel: p.provider.ID()})
	object.Annotations = map[string]string{wire.RemoteTenantNamespaceAnnotation: p.tenant.Namespace()}
	if server != "" {
		object.Annotations[wire.APIServerURLAnnotation] = server
	}
	if renews {
		object.Annotations[wire.RenewedAnnotation] = "true"
	}
	return &corev1.Secret{ObjectMeta: object, Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}}
}

// createNode creates the virtual node and all objects that its virtual kubelet needs.
func (j *joining) createNode(ctx context.Context, offered *offeredNode, network *podnetwork.Network, pullSecrets []*corev1.Secret) error {
	j.Report("%s: making virtual node %s", j.consumer.ID(), offered.name)
	if err := reclaimPeer(ctx, j.consumer.Cluster, j.provider.ID()); err != nil {
		return err
	}
	desired, err := j.desiredNode(ctx, offered, network)
	if err != nil {
		return err
	}
	objects := j.objectsOfNode(offered.name)
	if err := j.atConsumer.Apply(ctx, slices.Concat(objects.all(), j.copiedPullSecrets(pullSecrets), []client.Object{desired})...); err != nil {
		return err
	}
	vn := &offloading.VirtualNode{}
	if err := j.consumer.Client.Get(ctx, client.ObjectKeyFromObject(desired), vn); err != nil {
		return fmt.Errorf("cluster %s: getting VirtualNode %s, %w", j.consumer.Name, client.ObjectKeyFromObject(desired), err)
	}
	return j.atConsumer.Apply(ctx, objects.owned(vn, offered.kubeletSecret)...)
}

// nodeAnnotations returns the annotations for the network, for the pod ranges that the user has set, and for the
// labels that the provider may offer.
func (t *nodeTerms) nodeAnnotations(network *podnetwork.Network) map[string]string {
	annotations := map[string]string{}
	if network.Mode == plugins.NoNetwork {
		annotations[wire.AddressesAnnotation] = "false"
	}
	// With gateways, the virtual kubelet takes the ranges from the Configuration, because they may be translated.
	if len(t.declaredRanges) > 0 && network.Mode != plugins.GatewayNetwork {
		ranges := make([]string, len(t.declaredRanges))
		for i, prefix := range t.declaredRanges {
			ranges[i] = prefix.String()
		}
		annotations[wire.RangesAnnotation] = strings.Join(ranges, ",")
	}
	if len(t.accepted) > 0 {
		annotations[wire.AcceptedLabelsAnnotation] = strings.Join(t.accepted, ",")
	}
	return annotations
}

// desiredNode returns a VirtualNode whose virtual kubelet is scheduled in the same way as the controller manager. Only
// the required fields are set, because the CRD stores the template of the Deployment without a schema.
func (p *pair) desiredNode(ctx context.Context, offered *offeredNode, network *podnetwork.Network) (*unstructured.Unstructured, error) {
	provider, t := p.provider.ID(), &offered.nodeTerms
	node := &offloading.VirtualNode{
		ObjectMeta: cluster.Meta(wire.TenantNamespace(provider), t.name, map[string]string{wire.RemoteClusterIDLabel: provider}),
		Spec: offloading.VirtualNodeSpec{
			ClusterID: core.ClusterID(provider), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: p.objectsOfNode(t.name).secretName},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: t.resources}, Labels: t.node.Labels, OffloadingPatch: t.node.patch(),
			StorageClasses: t.node.StorageClasses, IngressClasses: t.node.IngressClasses, LoadBalancerClasses: t.node.LoadBalancerClasses,
		},
	}
	// In any other mode, the setting of the installation applies.
	if network.Mode == plugins.NoNetwork {
		node.Spec.DisableNetworkCheck = ptr.To(true)
	}
	node.Annotations = t.nodeAnnotations(network)
	if !p.provider.RunsLiqo {
		if err := p.applyOffer(ctx, offered, node); err != nil {
			return nil, err
		}
	}
	return p.withScheduling(node)
}

// applyOffer applies the resources and settings that the provider grants to a virtual node. It leaves out settings that
// the user has set with a flag or on the existing VirtualNode. If there is no offer yet, the existing values are kept.
func (p *pair) applyOffer(ctx context.Context, offered *offeredNode, vn *offloading.VirtualNode) error {
	maps.Copy(vn.Annotations, negotiation.Annotations(offered.resources, offered.node.explicit()...))
	present := &offloading.VirtualNode{}
	if err := p.consumer.Client.Get(ctx, client.ObjectKeyFromObject(vn), present); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting VirtualNode %s, %w", p.consumer.Name, client.ObjectKeyFromObject(vn), err)
	}
	vn.ManagedFields = present.ManagedFields
	request, err := negotiation.Requested(vn)
	vn.ManagedFields = nil
	if err != nil {
		return err
	}
	offer := offered.offer
	if offer == nil {
		spec := &present.Spec
		offer = &negotiation.Offer{StorageClasses: spec.StorageClasses, IngressClasses: spec.IngressClasses, LoadBalancerClasses: spec.LoadBalancerClasses, Labels: spec.Labels}
	}
	if refused := request.Restrict(offer, offered.accepted, present); len(refused) > 0 {
		p.Report("%s: warning: %s", p.consumer.ID(), negotiation.DescribeRefused(refused, p.provider.ID()))
	}
	vn.Spec.ResourceQuota.Hard = vn.Spec.ResourceQuota.Hard.DeepCopy()
	// The flags have set the requested resources. The offer overrides their amounts.
	maps.Copy(vn.Spec.ResourceQuota.Hard, offer.Resources)
	request.Apply(offer, vn)
	return nil
}

// withScheduling returns the VirtualNode with a template that has the same scheduling settings as the controller
// manager.
func (p *pair) withScheduling(node *offloading.VirtualNode) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		return nil, fmt.Errorf("encoding VirtualNode %s, %w", node.Name, err)
	}
	scheduling, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.consumer.Installation.Scheduling)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of VirtualNode %s, %w", node.Name, err)
	}
	// ToUnstructured converts missing containers to null.
	delete(scheduling, "containers")
	if len(scheduling) > 0 {
		// Liqo's CRD, which may still be installed, requires a container and a selector. The controller manager
		// merges both into its own Deployment.
		scheduling["containers"] = []any{map[string]any{"name": "virtual-kubelet"}}
		template := map[string]any{"spec": map[string]any{"selector": map[string]any{}, "template": map[string]any{"spec": scheduling}}}
		if err := unstructured.SetNestedMap(fields, template, "spec", "template"); err != nil {
			return nil, fmt.Errorf("encoding the template of VirtualNode %s, %w", node.Name, err)
		}
	}
	vn := &unstructured.Unstructured{Object: fields}
	vn.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	return vn, nil
}

// awaitReady waits until pods can be scheduled on the virtual node.
func (p *pair) awaitReady(ctx context.Context, name string) error {
	return p.Await(ctx, "virtual node "+name, func(ctx context.Context) (missing string, err error) {
		node := &corev1.Node{}
		err = p.consumer.Client.Get(ctx, client.ObjectKey{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("cluster %s: getting node %s, %w", p.consumer.Name, name, err)
		}
		if err != nil {
			return p.describeUnregistered(ctx, name)
		}
		switch _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); {
		case condition == nil:
			return "the node has no status yet", nil
		case condition.Status != corev1.ConditionTrue:
			return fmt.Sprintf("not ready: %s, %s", condition.Reason, condition.Message), nil
		}
		if missing, err := p.describeUnfinished(ctx, name); missing != "" || err != nil {
			return missing, err
		}
		p.Report("virtual node %s is ready", name)
		return "", nil
	})
}

// describeUnregistered returns the reason why the Node of a virtual node does not exist yet, as far as it is known.
func (p *pair) describeUnregistered(ctx context.Context, name string) (string, error) {
	if missing, err := p.describeUnfinished(ctx, name); missing != "" || err != nil {
		return missing, err
	}
	cluster := &core.ForeignCluster{}
	err := p.consumer.Client.Get(ctx, client.ObjectKey{Name: p.provider.ID()}, cluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("cluster %s: getting ForeignCluster %s, %w", p.consumer.Name, p.provider.ID(), err)
	}
	for _, condition := range cluster.Status.Conditions {
		if condition.Type == core.APIServerStatusCondition && condition.Status == core.ConditionStatusError {
			return "the provider is unreachable from the controller manager: " + condition.Message, nil
		}
	}
	return "its virtual kubelet has not registered the node yet", nil
}

// describeUnfinished returns the reason and the message of the first condition of the virtual node that is not met yet.
// It returns "" if there is no such condition with a message.
func (p *pair) describeUnfinished(ctx context.Context, name string) (string, error) {
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: name}
	if err := p.consumer.Client.Get(ctx, key, vn); err != nil {
		return "", fmt.Errorf("cluster %s: getting VirtualNode %s, %w", p.consumer.Name, key, err)
	}
	for _, condition := range vn.Status.Conditions {
		if condition.Message != "" && condition.Status != offloading.RunningConditionStatus {
			return fmt.Sprintf("%s, %s", condition.Reason, condition.Message), nil
		}
	}
	return "", nil
}
