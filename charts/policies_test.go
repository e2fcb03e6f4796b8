// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

const (
	remoteNamespace = "shop-rome"
	joinedNamespace = "shop-turin"
)

// held gives a test access to a real API server with the roles and policies of the chart.
type held struct {
	*testing.T
	cluster *testenv.Cluster
	admin   client.Client
}

func (h *held) as(user string, groups ...string) client.Client {
	h.Helper()
	config, err := h.cluster.ConfigFor(user, groups...)
	require.NoError(h, err)
	c, err := client.New(config, client.Options{Scheme: scheme(h.T)})
	require.NoError(h, err)
	return c
}

// heldValues returns the values of the chart that install uses.
func heldValues() map[string]any {
	return map[string]any{
		"discovery":         map[string]any{"config": map[string]any{"clusterID": "home"}},
		"consumers":         []any{map[string]any{"clusterID": "rome"}},
		"virtualKubelets":   []any{map[string]any{"name": "milan", "clusterID": "milan", "kubeconfigSecretName": "milan"}},
		"virtualKubelet":    map[string]any{"image": map[string]any{"name": "vk"}},
		"authentication":    map[string]any{"enabled": true},
		"tenants":           map[string]any{"unlimitedResources": true, "priorityClasses": []any{"batch"}, "runtimeClasses": []any{"gvisor"}},
		"controllerManager": map[string]any{"config": map[string]any{"enableNodeFailureController": true}},
		"plugins":           map[string]any{"enabled": true},
	}
}

// install creates the namespaces, roles and policies that all tests that call hold share.
func (h *held) install() {
	h.Helper()
	t, admin := h.T, h.admin
	for _, namespace := range []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: releaseNamespace}},
		{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{wire.TenantNamespaceLabel: "true"}}},
		{ObjectMeta: metav1.ObjectMeta{
			Name:        remoteNamespace,
			Labels:      map[string]string{wire.RemoteClusterIDLabel: "rome", "pod-security.kubernetes.io/enforce": "baseline"},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/home"},
		}},
		{ObjectMeta: metav1.ObjectMeta{
			Name:        joinedNamespace,
			Labels:      map[string]string{wire.RemoteClusterIDLabel: "turin", "pod-security.kubernetes.io/enforce": "baseline"},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-turin/home"},
		}},
	} {
		h.must(admin.Create(t.Context(), namespace))
	}
	for _, object := range objects(t, heldValues()) {
		switch object.(type) {
		case *corev1.Namespace, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding,
			*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding,
			*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding:
			h.must(admin.Create(t.Context(), object))
		}
	}
	// The controller manager creates these bindings in a namespace of a consumer.
	for namespace, consumer := range map[string]string{remoteNamespace: "rome", joinedNamespace: "turin"} {
		h.must(admin.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.TenantNamespace(consumer)},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: consumer},
				{Kind: rbacv1.ServiceAccountKind, Namespace: wire.TenantNamespace(consumer), Name: wire.ConsumerServiceAccount},
			},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-remote"},
		}))
	}
	// refractctl creates this binding for a virtual kubelet.
	h.must(admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "joined"}, Subjects: []rbacv1.Subject{rbac.ServiceAccount("liqo-tenant-turin", "turin")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-local"},
	}))
	// The API server begins to enforce policies in the order of their creation. The policy for the probe is created
	// last, so that all policies are enforced as soon as the probe is denied.
	policy, binding := probePolicy()
	h.must(admin.Create(t.Context(), policy))
	h.must(admin.Create(t.Context(), binding))
}

func (h *held) must(err error) {
	h.Helper()
	require.NoError(h, err)
}

// refused waits until an attempt to create an object is rejected with the given text.
func (h *held) refused(c client.Client, object client.Object, says string) {
	h.Helper()
	h.attempt(fmt.Sprintf("creating %T %s", object, client.ObjectKeyFromObject(object)), says, func() error {
		return c.Create(h.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	})
}

// attempt repeats an operation until it is rejected with the given text or, if the text is empty, until it succeeds.
// Repeating is necessary because policies take effect a moment after their creation.
func (h *held) attempt(what, says string, do func() error) {
	h.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		err := do()
		if says == "" && err == nil || says != "" && err != nil && strings.Contains(err.Error(), says) {
			return
		}
		if time.Now().After(end) {
			h.Errorf("%s: %v, want a refusal with %q", what, err, says)
			return
		}
	}
}

func shadow(namespace string, change func(*offloadingv1beta1.ShadowPod)) *offloadingv1beta1.ShadowPod {
	s := &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{wire.OriginLabel: "rome"}},
		Spec:       offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// TestPoliciesHold checks that a real API server enforces the policies of the chart. The policies must restrict
// consumers, and also our own controller manager in case it is compromised.
func TestPoliciesHold(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	for says, change := range map[string]func(*offloadingv1beta1.ShadowPod){
		"spec.pod.nodeName":            func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.NodeName = "control-plane" },
		"spec.pod.priorityClassName":   func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.PriorityClassName = "system-node-critical" },
		"is not allowed for consumers": func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.PriorityClassName = "production" },
		"spec.pod.priority": func(s *offloadingv1beta1.ShadowPod) {
			priority := int32(2000001000)
			s.Spec.Pod.Priority = &priority
		},
		"spec.pod.runtimeClassName": func(s *offloadingv1beta1.ShadowPod) {
			class := "kata"
			s.Spec.Pod.RuntimeClassName = &class
		},
		"spec.pod.schedulerName":    func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.SchedulerName = "batch-scheduler" },
		"offloading.liqo.io/origin": func(s *offloadingv1beta1.ShadowPod) { s.Labels[wire.OriginLabel] = "milan" },
	} {
		h.refused(rome, shadow(remoteNamespace, change), says)
	}
	h.refused(h.admin, shadow("somebody-elses", nil), "was not created")
	h.refused(rome, shadow("somebody-elses", nil), "forbidden") // RBAC rejects this before the policies are evaluated.
	h.refused(rome, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "thief"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}, ExternalIPs: []string{"10.0.0.10"}},
	}, "spec.externalIPs")

	// The policies also apply to a consumer that authenticates with a token, and to a consumer that was joined by
	// refractctl and is not listed in the values of the chart.
	account := h.as("system:serviceaccount:liqo-tenant-rome:refract-consumer")
	turin, accountOfTurin := h.as("turin-kubelet", "turin"), h.as("system:serviceaccount:liqo-tenant-turin:refract-consumer")
	for namespace, consumers := range map[string][]client.Client{remoteNamespace: {account}, joinedNamespace: {turin, accountOfTurin}} {
		for _, consumer := range consumers {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "thief"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53}}}}
			h.must(consumer.Create(t.Context(), service.DeepCopy(), client.DryRunAll))
			service.Spec.ExternalIPs = []string{"10.0.0.10"}
			h.refused(consumer, service, "spec.externalIPs")
		}
	}
	h.refused(account, shadow(joinedNamespace, nil), "forbidden")

	manager := h.as(fmt.Sprintf("system:serviceaccount:%s:%s-controller-manager", releaseNamespace, releaseName), "system:serviceaccounts", "system:authenticated")
	pod := func(namespace string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}
		change(p)
		return p
	}
	h.refused(manager, pod("somebody-elses", func(*corev1.Pod) {}), "only in namespaces that consumers have offloaded")
	h.refused(manager, pod("kube-system", func(*corev1.Pod) {}), "only in namespaces that consumers have offloaded")
	h.refused(manager, pod(remoteNamespace, func(p *corev1.Pod) { p.Spec.NodeName = "control-plane" }), "spec.nodeName")
	h.refused(manager, pod(remoteNamespace, func(p *corev1.Pod) { p.Spec.HostPID = true }), "PodSecurity")
	yes := true
	h.refused(manager, pod(remoteNamespace, func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	}), "PodSecurity")
	h.attempt("deleting another owner's namespace", "deletes only namespaces that it created", func() error {
		return manager.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}, client.DryRunAll)
	})

	// The controller manager may delete EndpointSlices of ShadowEndpointSlices, but no other EndpointSlices.
	for owner, allowed := range map[string]bool{"": false, "Service": false, "ShadowEndpointSlice": true} {
		endpoints := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "of-" + strings.ToLower(owner) + "-owner"}, AddressType: discoveryv1.AddressTypeIPv4}
		if owner != "" {
			// The API server does not serve the owner's group, so that the garbage collector does not delete the object
			// although its owner does not exist.
			endpoints.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: owner, Name: "web", UID: "1d0f4bd6-0000-4000-8000-000000000000", Controller: &yes}}
		}
		h.must(h.admin.Create(t.Context(), endpoints))
		remove := func() error { return manager.Delete(t.Context(), endpoints.DeepCopy(), client.DryRunAll) }
		if allowed {
			h.must(remove())
		} else {
			h.attempt("deleting the EndpointSlice "+endpoints.Name, "deletes only EndpointSlices of ShadowEndpointSlices", remove)
		}
	}

	h.confines(manager)

	kubelet := h.as("system:serviceaccount:liqo-tenant-milan:milan", "system:serviceaccounts", "system:authenticated")
	for node, allowed := range map[string]bool{"milan": true, "worker": false, "": false} {
		bound := pod("default", func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "of-"+node+"-node", node })
		h.must(h.admin.Create(t.Context(), bound))
		h.attempt("deleting another owner's pod", "deletes only pods of ShadowPods", func() error { return manager.Delete(t.Context(), bound, client.DryRunAll) })
		status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"seen"}}`))
		says := "only pods that are bound to its own node"
		if allowed {
			says = ""
		}
		h.attempt("deleting a pod of node "+node, says, func() error {
			return kubelet.Delete(t.Context(), bound.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll)
		})
		h.attempt("patching a pod of node "+node, says, func() error { return kubelet.Status().Patch(t.Context(), bound.DeepCopy(), status, client.DryRunAll) })
	}

	bound := pod("default", func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "of-worker", "worker" })
	h.must(h.admin.Create(t.Context(), bound))
	h.attempt("deleting the pod of another node", "only pods that are bound to its own node", func() error {
		return h.as("system:serviceaccount:liqo-tenant-turin:turin").Delete(t.Context(), bound.DeepCopy(), client.DryRunAll)
	})

	victim := pod(remoteNamespace, func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "victim", "worker" })
	h.must(h.admin.Create(t.Context(), victim))
	h.attempt("having a pod forgotten that still runs", "gracePeriodSeconds 0 is not allowed", func() error {
		return rome.Delete(t.Context(), victim.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll)
	})

	h.attempt("having it forgotten with a token", "gracePeriodSeconds 0 is not allowed", func() error {
		return account.Delete(t.Context(), victim.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll)
	})

	// The controller manager may delete pods of ShadowPods, but must not force-delete a pod that is still running.
	owned := func(name string, owner *metav1.OwnerReference) *corev1.Pod {
		p := pod(remoteNamespace, func(p *corev1.Pod) {
			p.Name, p.Spec.NodeName, p.Labels = name, "worker", map[string]string{"liqo.io/managed-by": "shadowpod"}
		})
		if owner != nil {
			p.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		h.must(h.admin.Create(t.Context(), p))
		return p
	}
	parent := shadow(remoteNamespace, func(s *offloadingv1beta1.ShadowPod) { s.Name = "parent" })
	h.must(rome.Create(t.Context(), parent))
	of := func(kind string, controls bool) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: "offloading.liqo.io/v1beta1", Kind: kind, Name: parent.Name, UID: parent.UID, Controller: &controls}
	}
	for name, owner := range map[string]*metav1.OwnerReference{"unowned": nil, "of-another-kind": of("ReplicaSet", true), "not-controlled": of("ShadowPod", false)} {
		labelled := owned(name, owner)
		h.attempt("deleting the pod "+name, "deletes only pods of ShadowPods", func() error { return manager.Delete(t.Context(), labelled.DeepCopy(), client.DryRunAll) })
	}
	ours := owned("of-a-shadow-pod", of("ShadowPod", true))
	h.attempt("removing a pod that still runs", "only if they are being deleted already", func() error {
		return manager.Delete(t.Context(), ours.DeepCopy(), client.GracePeriodSeconds(0), client.DryRunAll)
	})
	h.must(manager.Delete(t.Context(), ours.DeepCopy(), client.DryRunAll))

	// The operations that a consumer needs must still be allowed.
	h.must(account.Delete(t.Context(), victim.DeepCopy(), client.GracePeriodSeconds(5), client.DryRunAll))
	h.must(rome.Delete(t.Context(), victim.DeepCopy(), client.GracePeriodSeconds(5), client.DryRunAll))
	h.must(rome.Delete(t.Context(), victim.DeepCopy(), client.DryRunAll))
	h.must(rome.Create(t.Context(), shadow(remoteNamespace, nil)))
	h.must(rome.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, client.DryRunAll))
	h.must(manager.Create(t.Context(), pod(remoteNamespace, func(*corev1.Pod) {})))
	h.must(manager.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}, client.DryRunAll))
}

// confines checks that our own controller manager can make the changes that it needs in this cluster, and that other
// changes are denied although its roles permit them.
func (h *held) confines(manager client.Client) {
	h.Helper()
	namespace := func(name string, change func(*corev1.Namespace)) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      map[string]string{wire.RemoteClusterIDLabel: "rome", "pod-security.kubernetes.io/enforce": "baseline"},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/home"},
		}}
		change(n)
		return n
	}
	same := func(*corev1.Namespace) {}
	h.refused(manager, namespace("own", func(n *corev1.Namespace) { n.Annotations = nil }), "only for consumers")
	h.refused(manager, namespace("own", func(n *corev1.Namespace) { delete(n.Labels, wire.RemoteClusterIDLabel) }), "only for consumers")
	h.refused(manager, namespace("own", func(n *corev1.Namespace) { delete(n.Labels, "pod-security.kubernetes.io/enforce") }), "only for consumers")
	h.refused(manager, namespace("kube-own", same), "reserved")
	h.must(manager.Create(h.Context(), namespace("own-rome", same), client.DryRunAll))

	virtual := map[string]string{wire.TypeLabel: wire.VirtualNodeType}
	ofNode := map[string]string{wire.VirtualNodeLabel: "milan"}
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: virtual}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: ofNode}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "somebody-elses", Name: "theirs"}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "somebody-elses", Name: "milan", Labels: ofNode}},
	} {
		h.must(h.admin.Create(h.Context(), object))
		says := "The controller manager "
		if object.GetName() == "milan" {
			says = ""
		}
		h.attempt(fmt.Sprintf("deleting %T %s", object, object.GetName()), says, func() error { return manager.Delete(h.Context(), object, client.DryRunAll) })
	}
	kubelet := func(namespace, name, account string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: ofNode}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: ofNode},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: ofNode}, Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}
	}
	h.refused(manager, kubelet("somebody-elses", "vk-milan", "milan"), "only virtual kubelets")
	h.refused(manager, kubelet("liqo-tenant-milan", "vk-turin", "milan"), "only virtual kubelets")
	h.refused(manager, kubelet("liqo-tenant-milan", "vk-milan", "admin"), "only virtual kubelets")
	unlabelled := kubelet("liqo-tenant-milan", "vk-milan", "milan")
	for _, labels := range []map[string]string{nil, {"app": "vk-milan"}} {
		unlabelled.Labels = labels
		h.refused(manager, unlabelled.DeepCopy(), "only virtual kubelets")
	}
	h.must(manager.Create(h.Context(), kubelet("liqo-tenant-milan", "vk-milan", "milan"), client.DryRunAll))

	cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	h.attempt("cordoning a node that is not virtual", "only virtual nodes", func() error {
		return manager.Patch(h.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, cordon, client.DryRunAll)
	})
	h.must(manager.Patch(h.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}, cordon, client.DryRunAll))

	binding := func(namespace, role string, subject rbacv1.Subject) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	}
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "liqo-tenant-rome", Name: "rome"}
	const remote, extended, tenantRole = "liqo-virtual-kubelet-remote", "liqo-virtual-kubelet-extended", "liqo-remote-tenant"
	h.refused(manager, binding("somebody-elses", remote, group("rome")), "only in namespaces that were created for them")
	h.refused(manager, binding(remoteNamespace, remote, group("milan")), "only in namespaces that were created for them")
	h.refused(manager, binding("somebody-elses", extended, group("rome")), "only to ServiceAccounts")
	h.must(manager.Create(h.Context(), binding(remoteNamespace, remote, group("rome")), client.DryRunAll))
	h.refused(manager, binding("somebody-elses", tenantRole, rbac.User("rome")), "in a tenant namespace only to its consumer")
	h.refused(manager, binding("liqo-tenant-rome", tenantRole, rbac.User("milan")), "in a tenant namespace only to its consumer")
	h.refused(manager, binding("liqo-tenant-rome", tenantRole, group("rome")), "in a tenant namespace only to its consumer")
	h.refused(manager, binding(remoteNamespace, tenantRole, rbac.User("rome")), "in a tenant namespace only to its consumer")
	h.must(manager.Create(h.Context(), binding("liqo-tenant-rome", tenantRole, rbac.User("rome")), client.DryRunAll))
	h.must(manager.Create(h.Context(), binding("somebody-elses", extended, account), client.DryRunAll))
	for tenant, allowed := range map[string]bool{"liqo-tenant-rome": true, "liqo-tenant-milan": false} {
		says := "only in namespaces that were created for them"
		if allowed {
			says = ""
		}
		h.attempt("binding the account in "+tenant, says, func() error {
			return manager.Create(h.Context(), binding(remoteNamespace, remote, rbac.ServiceAccount(tenant, wire.ConsumerServiceAccount)), client.DryRunAll)
		})
	}
	h.refused(manager, binding(remoteNamespace, remote, account), "only in namespaces that were created for them")
	// Existing subjects that an administrator has added may stay, but no other subjects may be added to them.
	audited := binding(remoteNamespace, remote, group("auditors"))
	audited.Name = "audited"
	h.must(h.admin.Create(h.Context(), audited))
	for subject, says := range map[string]string{"rome": "", "milan": "only in namespaces that were created for them"} {
		h.attempt("adding "+subject, says, func() error {
			changed := audited.DeepCopy()
			changed.Subjects = append(changed.Subjects, group(subject))
			return manager.Patch(h.Context(), changed, client.MergeFrom(audited), client.DryRunAll)
		})
	}

	h.must(h.admin.Create(h.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "somebody-elses", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}))
	for _, patch := range []struct {
		object      client.Object
		subresource string
		patch       string
		says        string // empty if the operation is allowed
	}{
		{&corev1.Namespace{}, "", `{metadata: {annotations: {%s: mine/home}}}`, "may change only the label liqo.io/scheduling-enabled of a namespace"},
		{&corev1.Namespace{}, "", `{metadata: {annotations: {plugins.refract.io/tenant-condition: Active/1}}}`, "may change only the label liqo.io/scheduling-enabled of a namespace"},
		{&corev1.Namespace{}, "", `{metadata: {labels: {team: mine}}}`, "may change only the label liqo.io/scheduling-enabled of a namespace"},
		{&corev1.Namespace{}, "", `{metadata: {labels: {%s: rome}}}`, "may change only the label liqo.io/scheduling-enabled of a namespace"},
		{&corev1.Namespace{}, "", `{metadata: {labels: {liqo.io/scheduling-enabled: "true"}}}`, ""},
		{&corev1.Pod{}, "", `{metadata: {labels: {app: mine}}}`, "changes pods only"},
		{&corev1.Pod{}, "", `{metadata: {annotations: {app: mine}}}`, "changes pods only"},
		{&corev1.Pod{}, "", `{spec: {activeDeadlineSeconds: 1}}`, "changes pods only"},
		{&corev1.Pod{}, "ephemeralcontainers", `{spec: {ephemeralContainers: [{name: shell, image: shell, terminationMessagePolicy: File, imagePullPolicy: Always}]}}`, "changes pods only"},
		{&corev1.Pod{}, "", `{metadata: {labels: {liqo.io/remote-unavailable: "true"}}}`, ""},
	} {
		patch.object.SetName("somebody-elses")
		text := strings.ReplaceAll(patch.patch, "%s", wire.ManagedByNamespaceMapAnnotation)
		if strings.Contains(patch.patch, "%s: rome") {
			text = strings.ReplaceAll(patch.patch, "%s", wire.RemoteClusterIDLabel)
		}
		if _, ok := patch.object.(*corev1.Pod); ok {
			patch.object.SetNamespace("somebody-elses")
			patch.object.SetName("web")
		}
		raw, err := yaml.YAMLToJSON([]byte(text))
		h.must(err)
		send := client.RawPatch(types.MergePatchType, raw)
		h.attempt(fmt.Sprintf("patching %T %s with %s", patch.object, patch.subresource, text), patch.says, func() error {
			object := patch.object.DeepCopyObject().(client.Object)
			if patch.subresource != "" {
				return manager.SubResource(patch.subresource).Patch(h.Context(), object, send, client.DryRunAll)
			}
			return manager.Patch(h.Context(), object, send, client.DryRunAll)
		})
	}

	const keys = `{"metadata":{"annotations":{"` + wire.ConsumerKeysAnnotation + `":%s}}}`
	for _, step := range []struct{ begun, written, says string }{
		{`null`, `"sha256:theirs"`, "update an existing annotation"}, {`"sha256:ours"`, `"sha256:next"`, ""}, {`"sha256:ours"`, `null`, "update an existing annotation"},
	} {
		tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}}
		h.must(h.admin.Patch(h.Context(), tenant.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, keys, step.begun))))
		h.attempt("changing the keys of a consumer from "+step.begun+" to "+step.written, step.says, func() error {
			return manager.Patch(h.Context(), tenant, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, keys, step.written)), client.DryRunAll)
		})
	}
}

// TestConsumersGrantThemselvesNothing checks that in a cluster that also runs Liqo, a consumer cannot write its own
// grants, although Liqo's role permits this.
func TestConsumersGrantThemselvesNothing(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{filepath.Join(chartDir, "crds")}, NoScheduler: true})[0]
	admin, err := client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	h := &held{t, cluster, admin}
	for _, object := range objects(t, values(t, "authentication")) {
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			h.must(admin.Create(t.Context(), object))
		}
	}
	const namespace = "liqo-tenant-rome"
	h.must(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	h.must(admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "as-liqo-has-it"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.liqo.io"}, Resources: []string{"resourceslices", "resourceslices/status"}, Verbs: []string{"*"}}}}))
	h.must(admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rome"},
		Subjects: []rbacv1.Subject{rbac.User("rome")}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "as-liqo-has-it"}}))
	slice := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
		"metadata": map[string]any{"namespace": namespace, "name": "rome"}}}
	rome := h.as("rome", "liqo.io")
	h.attempt("asking for a share", "", func() error { return rome.Create(t.Context(), slice.DeepCopy()) })
	patch := func(c client.Client, status bool, text string) func() error {
		return func() error {
			patch := client.RawPatch(types.MergePatchType, []byte(text))
			if status {
				return c.Status().Patch(t.Context(), slice.DeepCopy(), patch)
			}
			return c.Patch(t.Context(), slice.DeepCopy(), patch)
		}
	}
	h.attempt("granting itself a share", "Only this cluster writes the status", patch(rome, true, `{"status":{"resources":{"cpu":"1000"}}}`))
	h.attempt("granting it", "", patch(admin, true, `{"status":{"resources":{"cpu":"1"}}}`))
	h.attempt("asking for more", "", patch(rome, false, `{"spec":{"resources":{"cpu":"2"}}}`))
	h.attempt("annotating it", "", patch(rome, false, `{"metadata":{"annotations":{"example.com/team":"web"}}}`))
	h.attempt("cordoning it", "", patch(admin, false, `{"metadata":{"annotations":{"liqo.io/cordon":"true"}}}`))
	h.attempt("uncordoning itself", "by an administrator", patch(rome, false, `{"metadata":{"annotations":{"liqo.io/cordon":null}}}`))
	h.attempt("uncordoning itself otherwise", "by an administrator", patch(rome, false, `{"metadata":{"annotations":{"liqo.io/cordon":"false"}}}`))
	h.attempt("asking for more while cordoned", "", patch(rome, false, `{"spec":{"resources":{"cpu":"3"}}}`))
}
