// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// kubelets are the identities of virtual kubelets, by name with their namespace: one from the chart, one from
// refractctl in a tenant namespace with another name, and one for a virtual node that has the name of a consumer's
// ServiceAccount.
var kubelets = map[string]string{"milan": "liqo-tenant-milan", "turin": "peers", wire.ConsumerServiceAccount: "liqo-tenant-lodi"}

func (h *held) kubelet(name string) client.Client {
	h.Helper()
	namespace := kubelets[name]
	if name != "milan" {
		h.must(client.IgnoreAlreadyExists(h.admin.Create(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true"}}})))
		for _, object := range (rbac.Kubelet{NodeName: name, TenantNamespace: namespace, KubeconfigSecret: "kubeconfig", Subject: rbac.ServiceAccount(namespace, name), Plugins: true}).Objects() {
			h.must(client.IgnoreAlreadyExists(h.admin.Create(h.Context(), object.(client.Object))))
		}
	}
	return h.as("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:authenticated")
}

func virtualNode(name string, change func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			wire.TypeLabel: wire.VirtualNodeType, corev1.LabelHostname: name, wire.RemoteClusterIDLabel: name,
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: wire.VirtualNodeTaint, Value: wire.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute},
		}},
	}
	if change != nil {
		change(node)
	}
	return node
}

func nodeLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name}}
}

func placeholder(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{wire.ProvisionedByAnnotation: wire.StorageProvisioner}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/liqo-placeholder", Type: ptr.To(corev1.HostPathDirectory)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: wire.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"milan"}}},
			}}}},
		},
	}
	if change != nil {
		change(volume)
	}
	return volume
}

// TestATakenOverKubeletStaysInItsPlace checks that a provider that has compromised its virtual kubelet can only
// control the node of this virtual kubelet. It cannot write other Nodes or Leases, remove the taint of its Node, create
// volumes that refer to real nodes, or get other certificates.
func TestATakenOverKubeletStaysInItsPlace(t *testing.T) {
	h := hold(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	h.must(err)
	csr, err := cert.MakeCSR(key, &pkix.Name{CommonName: "system:node:milan", Organization: []string{"system:nodes"}}, nil, []net.IP{net.IPv4(10, 0, 0, 1)})
	h.must(err)
	real := &corev1.PersistentVolume{}
	*real = *placeholder(func(v *corev1.PersistentVolume) { v.Name, v.Spec.NodeAffinity = "real", nil })
	h.must(h.admin.Create(t.Context(), real))
	others := placeholder(func(v *corev1.PersistentVolume) { v.Name, v.Annotations = "of-another-provisioner", nil })
	h.must(h.admin.Create(t.Context(), others))
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-worker"}, Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}
	for name := range kubelets {
		t.Run(name, func(t *testing.T) {
			h := &held{t, h.cluster, h.admin}
			kubelet := h.kubelet(name)
			h.refused(kubelet, virtualNode("fake-1", nil), "has the name of its ServiceAccount")
			h.refused(kubelet, virtualNode(name, func(n *corev1.Node) { delete(n.Labels, wire.TypeLabel) }), "has the label liqo.io/type=virtual-node")
			h.refused(kubelet, virtualNode(name, func(n *corev1.Node) { n.Labels[wire.TypeLabel] = "worker" }), "has the label liqo.io/type=virtual-node")
			h.refused(kubelet, virtualNode(name, func(n *corev1.Node) { n.Spec.Taints = nil }), "has the taint virtual-node.liqo.io/not-allowed")
			h.refused(kubelet, virtualNode(name, func(n *corev1.Node) { n.Spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule }), "has the taint virtual-node.liqo.io/not-allowed")
			h.refused(kubelet, virtualNode(name, func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "worker" }), "kubernetes.io/hostname")
			h.must(kubelet.Create(t.Context(), virtualNode(name, nil)))
			patch := func(subresource, text string) func() error {
				raw := client.RawPatch(types.MergePatchType, []byte(text))
				return func() error {
					node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if subresource != "" {
						return kubelet.SubResource(subresource).Patch(t.Context(), node, raw, client.DryRunAll)
					}
					return kubelet.Patch(t.Context(), node, raw, client.DryRunAll)
				}
			}
			for _, subresource := range []string{"", "status"} {
				h.attempt("dropping the label through "+subresource, "has the label liqo.io/type=virtual-node", patch(subresource, `{"metadata":{"labels":{"liqo.io/type":null}}}`))
				h.attempt("claiming another host through "+subresource, "kubernetes.io/hostname", patch(subresource, `{"metadata":{"labels":{"kubernetes.io/hostname":"worker"}}}`))
				for _, value := range []string{`"rome"`, "null"} {
					what := fmt.Sprintf("setting the provider to %s through %s", value, subresource)
					h.attempt(what, "does not change the label liqo.io/remote-cluster-id",
						patch(subresource, `{"metadata":{"labels":{"liqo.io/remote-cluster-id":`+value+`}}}`))
				}
			}
			h.attempt("dropping the taint", "has the taint virtual-node.liqo.io/not-allowed", patch("", `{"spec":{"taints":null}}`))
			// The policy cannot deny other labels, because the virtual kubelet copies them from the VirtualNode. A
			// label that is not in the VirtualNode has no effect: the controllers offload no namespace because of it.
			h.attempt("changing labels", "", patch("", `{"metadata":{"labels":{"tier":"trusted"}}}`))
			h.attempt("reporting the status", "", patch("status", `{"status":{"capacity":{"cpu":"8"}}}`))
			// The virtual kubelet must be able to restore labels that another client has removed.
			h.must(h.admin.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/type":null}}}`))))
			h.attempt("reporting the status meanwhile", "", patch("status", `{"status":{"capacity":{"cpu":"8"}}}`))
			h.attempt("restoring the label", "", patch("", `{"metadata":{"labels":{"liqo.io/type":"virtual-node"}}}`))
			administer := func(text string) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				h.must(h.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(text))))
			}
			administer(`{"metadata":{"labels":{"liqo.io/type":"virtual-node","liqo.io/remote-cluster-id":"wrong"}}}`)
			refusal := map[bool]string{true: "", false: "an administrator removes it"}[kubelets[name] == wire.TenantNamespace(name)]
			correct := patch("", fmt.Sprintf(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":%q}}}`, name))
			h.attempt("correcting the provider", refusal, correct)
			h.attempt("reporting the status of a wrong provider", "", patch("status", `{"status":{"capacity":{"cpu":"8"}}}`))
			administer(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":null}}}`)
			h.attempt("restoring the provider", "", correct)
			// A node without the label and the taint of virtual nodes belongs to another owner, even if it has the
			// name of the virtual node.
			administer(`{"metadata":{"labels":{"liqo.io/type":null}},"spec":{"taints":null}}`)
			h.attempt("taking a real node over", "changes only a virtual node", patch("", `{"metadata":{"labels":{"liqo.io/type":"virtual-node"}},"spec":{"taints":[{"key":"virtual-node.liqo.io/not-allowed","effect":"NoExecute"}]}}`))

			h.refused(kubelet, nodeLease("worker"), "only the Lease of its own node")
			h.must(kubelet.Create(t.Context(), nodeLease(name), client.DryRunAll))

			h.refused(kubelet, placeholder(func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/etc" }), "only volumes that represent one of a provider")
			h.refused(kubelet, placeholder(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }), "only volumes that represent one of a provider")
			h.refused(kubelet, placeholder(func(v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelHostname
			}), "only volumes that represent one of a provider")
			// A volume with the operator NotIn must be denied, because it is for all nodes except the virtual node.
			h.refused(kubelet, placeholder(func(v *corev1.PersistentVolume) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn
			}), "only volumes that represent one of a provider")
			// A volume that another provisioner has made would be deleted by that provisioner, with the data behind it.
			for _, annotations := range []map[string]string{nil, {"note": "mine"}, {wire.ProvisionedByAnnotation: "ebs.csi.aws.com"}} {
				h.refused(kubelet, placeholder(func(v *corev1.PersistentVolume) { v.Annotations = annotations }), "only volumes that represent one of a provider")
			}
			for _, volume := range []*corev1.PersistentVolume{real, others} {
				h.attempt("deleting the volume "+volume.Name+" of this cluster", "changes and deletes only volumes", func() error {
					return kubelet.Delete(t.Context(), volume.DeepCopy(), client.DryRunAll)
				})
			}
			h.attempt("passing the volume of another provisioner off as one of the provider", "changes and deletes only volumes", func() error {
				taken := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"liqo.io/storage"}}}`, wire.ProvisionedByAnnotation))
				return kubelet.Patch(t.Context(), others.DeepCopy(), taken, client.DryRunAll)
			})
			h.attempt("passing a volume of this cluster off as one of the provider", "only volumes that represent one of a provider", func() error {
				return kubelet.Patch(t.Context(), real.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"mine":"true"}}}`)), client.DryRunAll)
			})
			own := placeholder(func(v *corev1.PersistentVolume) { v.Name = "of-" + name })
			h.must(kubelet.Create(t.Context(), own))
			h.must(kubelet.Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"capacity":{"storage":"2Gi"}}}`))))
			h.must(kubelet.Delete(t.Context(), own))

			request := func(signer string) *certificatesv1.CertificateSigningRequest {
				return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
					SignerName: signer, Request: csr, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}}}
			}
			h.refused(kubelet, request(certificatesv1.KubeAPIServerClientSignerName), "only serving certificates")
			h.must(kubelet.Create(t.Context(), request(certificatesv1.KubeletServingSignerName), client.DryRunAll))

			h.attempt("reporting on the pod of another node", "only pods that are bound to its own node", func() error {
				// The pod is created before each attempt, because it may be deleted after a while: its node does not
				// exist.
				h.must(client.IgnoreAlreadyExists(h.admin.Create(t.Context(), bound.DeepCopy())))
				return kubelet.Status().Patch(t.Context(), bound.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"seen"}}`)), client.DryRunAll)
			})
		})
	}
	h.refused(h.admin, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: wire.ConsumerServiceAccount}}, "is reserved")

	// Administrators are not restricted like virtual kubelets, even if they use a ServiceAccount.
	h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Subjects: []rbacv1.Subject{rbac.ServiceAccount("default", "operator")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}))
	operator := h.as("system:serviceaccount:default:operator", "system:serviceaccounts", "system:authenticated")
	h.attempt("creating a node as an administrator", "", func() error {
		return operator.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}, client.DryRunAll)
	})
}
