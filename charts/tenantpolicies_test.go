// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/rbac"
)

const sharedNamespace = "liqo-tenant-rome"

// tenantObject returns an object in the tenant namespace of rome.
func (h *held) tenantObject(text string) *unstructured.Unstructured {
	h.Helper()
	object := &unstructured.Unstructured{}
	h.must(yaml.Unmarshal([]byte(text), &object.Object))
	object.SetNamespace(sharedNamespace)
	return object
}

const (
	incomingLabels = `{liqo.io/replication: "false", liqo.io/replicated: "true", liqo.io/originID: rome, liqo.io/remote-cluster-id: rome}`
	outgoingLabels = `{liqo.io/replication: "true", liqo.io/remoteID: rome, liqo.io/remote-cluster-id: rome}`
)

// TestTenantNamespacesAreShared checks a peer that is both consumer and provider, whose tenant namespace also has
// objects of this cluster. For each kind, an identity of the consumer must only be able to write objects that the
// consumer itself has sent.
func TestTenantNamespacesAreShared(t *testing.T) {
	h := hold(t)
	identities := map[string]client.Client{
		"a certificate of its group":       h.as("rome-kubelet", "rome"),
		"Liqo's control-plane certificate": h.as("rome", "liqo.io"),
		"a token":                          h.as("system:serviceaccount:"+sharedNamespace+":refract-consumer", "system:serviceaccounts", "system:authenticated"),
	}
	h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "all"},
		Subjects: []rbacv1.Subject{rbac.User("rome"), rbac.Group("rome"), rbac.ServiceAccount(sharedNamespace, "refract-consumer")},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "as-liqo-has-it"}}))
	h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "as-liqo-has-it"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"authentication.liqo.io", "offloading.liqo.io", "coordination.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}))

	const slice, renew = `apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice`, `apiVersion: authentication.liqo.io/v1beta1, kind: Renew, spec: {consumerClusterID: rome, identityType: ControlPlane, publicKey: YQ==, CSR: YQ==}`
	const namespaceMap, lease = `apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceMap`, `apiVersion: coordination.k8s.io/v1, kind: Lease`
	ours := map[string]*unstructured.Unstructured{}
	for kind, text := range map[string]string{
		"the NamespaceMap": "{" + namespaceMap + `, metadata: {name: rome, labels: ` + outgoingLabels + `}, spec: {desiredMapping: {shop: shop-home}}}`,
		"a ResourceSlice":  "{" + slice + `, metadata: {name: ours, labels: ` + outgoingLabels + `}}`,
		"a Renew":          "{" + renew + `, metadata: {name: ours, labels: ` + outgoingLabels + `}}`,
		"a Lease":          "{" + lease + `, metadata: {name: rome}, spec: {holderIdentity: vk}}`,
	} {
		ours[kind] = h.tenantObject(text)
		h.must(h.admin.Create(t.Context(), ours[kind].DeepCopy()))
	}
	merge := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	for name, peer := range identities {
		for kind, object := range ours {
			says := "A consumer "
			h.attempt("changing "+kind+" of this cluster with "+name, says, func() error {
				return peer.Patch(t.Context(), object.DeepCopy(), merge(`{"metadata":{"annotations":{"a":"b"}}}`), client.DryRunAll)
			})
			h.attempt("replacing the labels of "+kind+" with "+name, says, func() error {
				return peer.Patch(t.Context(), object.DeepCopy(), merge(`{"metadata":{"labels":{"liqo.io/replication":"false","liqo.io/replicated":"true","liqo.io/originID":"rome"}}}`), client.DryRunAll)
			})
			h.attempt("deleting "+kind+" with "+name, says, func() error { return peer.Delete(t.Context(), object.DeepCopy(), client.DryRunAll) })
			all := object.DeepCopy()
			h.attempt("deleting all of "+kind+" with "+name, says, func() error {
				return peer.DeleteAllOf(t.Context(), all, client.InNamespace(sharedNamespace), client.DryRunAll)
			})
		}
		for says, texts := range map[string][]string{
			"writes only its own NamespaceMap": {
				"{" + namespaceMap + `, metadata: {name: home, labels: ` + outgoingLabels + `}}`,
				"{" + namespaceMap + `, metadata: {name: home}}`,
				"{" + namespaceMap + `, metadata: {name: home, labels: {liqo.io/replicated: "true", liqo.io/originID: turin}}}`,
				"{" + namespaceMap + `, metadata: {name: home, labels: {liqo.io/replicated: "true", liqo.io/originID: rome, liqo.io/replication: "true", liqo.io/remoteID: home}}}`,
			},
			"is named after the cluster id of this provider": {"{" + namespaceMap + `, metadata: {name: milan, labels: ` + incomingLabels + `}}`},
			"writes only its own ResourceSlices and Renews": {
				"{" + slice + `, metadata: {name: mine, labels: ` + outgoingLabels + `}}`, "{" + slice + `, metadata: {name: mine}}`, "{" + renew + `, metadata: {name: mine, labels: ` + outgoingLabels + `}}`,
			},
			"writes only the Lease refract-heartbeat": {"{" + lease + `, metadata: {name: milan}}`, "{" + lease + `, metadata: {generateName: refract-heartbeat}}`},
			"is at most 600": {"{" + lease + `, metadata: {name: refract-heartbeat}, spec: {leaseDurationSeconds: 2147483647}}`},
		} {
			for _, text := range texts {
				h.attempt("creating "+text+" with "+name, says, func() error { return peer.Create(t.Context(), h.tenantObject(text), client.DryRunAll) })
			}
		}

		// The operations that a consumer needs must still be allowed.
		allowed := []string{
			"{" + namespaceMap + `, metadata: {name: home, labels: ` + incomingLabels + `}, spec: {desiredMapping: {shop: shop-rome}}}`,
			"{" + renew + `, metadata: {name: refract-consumer}}`,
			"{" + lease + `, metadata: {name: refract-heartbeat}, spec: {leaseDurationSeconds: 120}}`,
		}
		// Only a consumer that has joined with a Tenant may create these requests, because a ResourceQuota then counts them.
		of := []string{"{" + slice + `, metadata: {name: mine, labels: ` + incomingLabels + `}}`, "{" + renew + `, metadata: {name: mine, labels: ` + incomingLabels + `}}`}
		if name == "Liqo's control-plane certificate" {
			allowed = append(allowed, of...)
		} else {
			for _, text := range of {
				h.attempt("creating "+text+" with "+name, "creates only the Renew refract-consumer", func() error { return peer.Create(t.Context(), h.tenantObject(text), client.DryRunAll) })
			}
		}
		for _, text := range allowed {
			object := h.tenantObject(text)
			h.attempt("creating "+text+" with "+name, "", func() error { return peer.Create(t.Context(), object) })
			h.attempt("changing "+text+" with "+name, "", func() error {
				return peer.Patch(t.Context(), object, merge(`{"metadata":{"annotations":{"a":"b"}}}`))
			})
			if _, isIncoming := object.GetLabels()["liqo.io/replicated"]; isIncoming {
				h.attempt("making "+text+" an object of this cluster with "+name, "A consumer writes only its own", func() error {
					return peer.Patch(t.Context(), object.DeepCopy(), merge(`{"metadata":{"labels":{"liqo.io/replication":"true","liqo.io/remoteID":"rome"}}}`), client.DryRunAll)
				})
			}
			switch object.GetKind() {
			case "NamespaceMap", "Renew":
				h.attempt("answering "+text+" with "+name, "Only this cluster writes the status", func() error {
					return peer.Status().Patch(t.Context(), object.DeepCopy(), merge(`{"status":{"currentMapping":{"a":{"remoteNamespace":"b"}},"authParams":{}}}`))
				})
			case "Lease":
				h.attempt("extending "+text+" with "+name, "is at most 600", func() error {
					return peer.Patch(t.Context(), object.DeepCopy(), merge(`{"spec":{"leaseDurationSeconds":601}}`))
				})
			}
			h.attempt("deleting "+text+" with "+name, "", func() error { return peer.Delete(t.Context(), object) })
		}
	}
	// The policies must not apply to this cluster's own processes.
	kubelet := h.as("system:serviceaccount:"+sharedNamespace+":milan", "system:serviceaccounts:"+sharedNamespace)
	h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "own"}, Subjects: []rbacv1.Subject{rbac.ServiceAccount(sharedNamespace, "milan")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "as-liqo-has-it"}}))
	h.attempt("electing a leader", "", func() error {
		return kubelet.Create(t.Context(), h.tenantObject("{"+lease+", metadata: {name: milan}}"), client.DryRunAll)
	})
	h.attempt("requesting namespaces", "", func() error {
		return kubelet.Patch(t.Context(), ours["the NamespaceMap"].DeepCopy(), merge(`{"spec":{"desiredMapping":{"a":"b"}}}`), client.DryRunAll)
	})
}
