// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// private is the prefix of the names of all objects that must not reach milan.
const private = "private-"

// spied records objects that must never exist.
type spied struct {
	mu   sync.Mutex
	seen []string
}

func (s *spied) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

func (s *spied) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// spy watches for forbidden objects until the test ends: private objects in milan, and RoleBindings in rome that give
// milan's virtual kubelet access to one of the namespaces.
func (l *clusters) spy(namespaces ...string) *spied {
	l.Helper()
	s := &spied{}
	watch := func(side *side, list client.ObjectList, check func(client.Object)) {
		w, err := side.admin.Watch(l.Context(), list)
		require.NoError(l, err)
		go func() {
			for event := range w.ResultChan() {
				if object, ok := event.Object.(client.Object); ok {
					check(object)
				}
			}
		}()
		l.Cleanup(w.Stop)
	}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &offloading.ShadowPodList{}} {
		watch(l.sides["milan"], list, func(object client.Object) {
			if strings.HasPrefix(object.GetName(), private) {
				s.add("%T %s/%s in milan", object, object.GetNamespace(), object.GetName())
			}
		})
	}
	watch(l.sides["rome"], &rbacv1.RoleBindingList{}, func(object client.Object) {
		binding := object.(*rbacv1.RoleBinding)
		for _, subject := range binding.Subjects {
			if opens(binding) && subject.Namespace == wire.TenantNamespace("milan") && slices.Contains(namespaces, object.GetNamespace()) {
				s.add("RoleBinding %s/%s with %s", object.GetNamespace(), object.GetName(), subject.Name)
			}
		}
	})
	return s
}

// opens reports whether a RoleBinding gives virtual kubelets access to its namespace. The RoleBinding in kube-system,
// with which they verify requests to their kubelet API, does not count.
func opens(binding *rbacv1.RoleBinding) bool {
	return strings.HasSuffix(binding.RoleRef.Name, "-virtual-kubelet-extended")
}

// offload creates a namespace in rome, and offloads it to the nodes whose label has one of the values.
func (l *clusters) offload(namespace, label string, values ...string) {
	l.Helper()
	rome := l.sides["rome"]
	l.create(rome, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for _, name := range []string{private + "a", private + "b"} {
		if namespace != "shop" {
			l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{"account": "42"}})
			l.create(rome, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"account": "42"}})
		}
	}
	l.create(rome, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: map[bool]string{true: "web", false: private + "web"}[namespace == "shop"]}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	l.create(rome, &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, Spec: offloading.NamespaceOffloadingSpec{
		ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: values}}}}},
	}})
}

// flows creates an object in each offloaded namespace, and waits until all of these objects are reflected. All objects
// that were created earlier would have been reflected by then, too.
func (l *clusters) flows(round string) {
	l.Helper()
	rome := l.sides["rome"]
	for namespace, provider := range map[string]string{"shop": "milan", "finance": "turin"} {
		name := round
		if provider == "turin" {
			name = private + round
		}
		l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		l.arrives(l.sides[provider], namespace+"-rome", name)
	}
}

// copyInMilan returns a NamespaceMap that looks like the copy of rome's map in milan.
func copyInMilan(desired map[string]string) *offloading.NamespaceMap {
	return &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("rome"), Name: "milan", Labels: map[string]string{
			wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: "rome", wire.RemoteClusterIDLabel: "rome",
		}},
		Spec: offloading.NamespaceMapSpec{DesiredMapping: desired},
	}
}

// TestNothingOfAnotherProviderArrives lets a provider write to its own cluster, and to the other cluster with its
// identity as a consumer. If a namespace selects another provider or none, its objects must not be reflected to this
// provider, and no RoleBinding in the namespace may name the provider's virtual kubelet.
func TestNothingOfAnotherProviderArrives(t *testing.T) {
	l := begin(t, map[string][]string{"milan": {"--set=discovery.config.clusterLabels.tier=trusted"}}, "rome", "milan", "turin")
	rome, milan := l.sides["rome"], l.sides["milan"]
	l.peer("rome", "turin")
	l.peer("rome", "milan")
	l.peer("milan", "rome")
	protected := []string{"finance", "vault", "plain", "kube-system", "default"}
	spied := l.spy(protected...)
	thief := l.identity("milan", "rome")
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	stolen := map[string]string{"finance": "finance-rome", "vault": "vault-rome", "plain": "plain-rome", "kube-system": "ks-rome", "default": "default-rome"}

	// First attack: a map already exists in milan when rome sends its first map.
	l.create(milan, copyInMilan(stolen))
	outgoing := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: "milan", Labels: map[string]string{
		wire.ReplicationLabel: "true", wire.RemoteIDLabel: "milan", wire.RemoteClusterIDLabel: "milan"}}, Spec: offloading.NamespaceMapSpec{DesiredMapping: stolen}}
	l.refused("creating the map for itself", "writes only its own NamespaceMap", func() error { return thief.Create(t.Context(), outgoing.DeepCopy()) })
	squatter := outgoing.DeepCopy()
	squatter.Labels = map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "milan", wire.RemoteClusterIDLabel: "milan"}
	l.refused("taking the name of the map", "is named after the cluster id of this provider", func() error { return thief.Create(t.Context(), squatter) })
	l.refused("taking the lease of a virtual kubelet", "writes only the Lease refract-heartbeat", func() error {
		return thief.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: "milan-2"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(int32(1) << 30)}})
	})
	// The map that the provider sends as a consumer has the same label. rome's virtual kubelet must not use this map.
	incoming := squatter.DeepCopy()
	incoming.Name, incoming.Spec.DesiredMapping = "rome", stolen
	require.NoError(t, thief.Create(t.Context(), incoming))

	l.offload("shop", wire.RemoteClusterIDLabel, "milan")
	l.create(rome, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: private + "plain"}})
	l.offload("finance", wire.RemoteClusterIDLabel, "turin")
	l.offload("vault", "tier", "trusted")
	l.flows("first")

	// Second attack: the provider changes the map in rome.
	l.refused("adding namespaces", "writes only its own NamespaceMap", func() error {
		return thief.Patch(t.Context(), outgoing.DeepCopy(), merge(`{"spec":{"desiredMapping":{"finance":"finance-rome","vault":"vault-rome"}}}`))
	})
	l.refused("deleting the map", "not those of this cluster", func() error { return thief.Delete(t.Context(), outgoing.DeepCopy()) })
	l.refused("claiming that they are accepted", `"namespacemaps/status"`, func() error {
		return thief.Status().Patch(t.Context(), outgoing.DeepCopy(), merge(`{"status":{"currentMapping":{"finance":{"remoteNamespace":"finance-rome","phase":"Accepted"}}}}`))
	})
	// Third attack: milan changes the spec and the status of the copy in its own cluster, and the labels that it
	// offers.
	copied := copyInMilan(nil)
	l.patch(milan, copied, `{"spec":{"desiredMapping":{"vault":"vault-rome","finance":"finance-rome"}}}`, false)
	l.patch(milan, copyInMilan(nil), `{"status":{"currentMapping":{"vault":{"remoteNamespace":"vault-rome","phase":"Accepted"},"finance":{"remoteNamespace":"finance-rome","phase":"Accepted"}}}}`, true)
	slice := &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("rome"), Name: "milan"}}
	l.patch(milan, slice, `{"status":{"nodeLabels":{"tier":"trusted","liqo.io/remote-cluster-id":"turin"}}}`, true)
	l.await("the offer to be refused", func() error {
		events := &corev1.EventList{}
		if err := rome.admin.List(t.Context(), events, client.InNamespace(wire.TenantNamespace("milan"))); err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == "LabelsNotAccepted" && strings.Contains(events.Items[i].Message, "tier=trusted") {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events says so", len(events.Items))
	})
	l.flows("second")

	// Fourth attack: milan controls rome's virtual kubelet, and gives its Node the labels that other namespaces select.
	taken := l.kubelet("rome", "milan")
	label := func(key, value string) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
		return taken.Patch(t.Context(), node, merge(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)))
	}
	l.refused("labelling its Node as another provider", "does not change the label liqo.io/remote-cluster-id", func() error {
		return label(wire.RemoteClusterIDLabel, "turin")
	})
	require.NoError(t, label("tier", "trusted"))
	l.await("the label to be reported", func() error {
		events := &eventsv1.EventList{}
		if err := rome.admin.List(t.Context(), events, client.InNamespace("vault")); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == "LabelsNotInVirtualNode" }) {
			return fmt.Errorf("none of %d Events says so", len(events.Items))
		}
		return nil
	})
	l.flows("relabelled")

	// The map is deleted in both clusters. milan recreates it before rome does.
	for _, lost := range []struct {
		side *side
		key  *offloading.NamespaceMap
	}{{rome, outgoing}, {milan, copied}} {
		l.patch(lost.side, lost.key.DeepCopy(), `{"metadata":{"finalizers":null}}`, false)
		require.NoError(t, client.IgnoreNotFound(lost.side.admin.Delete(t.Context(), lost.key.DeepCopy())))
	}
	if err := milan.admin.Create(t.Context(), copyInMilan(stolen)); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	} else {
		l.patch(milan, copyInMilan(nil), `{"spec":{"desiredMapping":{"finance":"finance-rome","vault":"vault-rome","plain":"plain-rome"}}}`, false)
	}
	l.flows("third")

	own := &offloading.NamespaceMap{}
	require.NoError(t, rome.admin.Get(t.Context(), client.ObjectKeyFromObject(outgoing), own))
	assert.Equal(t, map[string]string{"shop": "shop-rome"}, own.Spec.DesiredMapping)
	for namespace := range stolen {
		bindings := &rbacv1.RoleBindingList{}
		require.NoError(t, rome.admin.List(t.Context(), bindings, client.InNamespace(namespace)))
		for i := range bindings.Items {
			for _, subject := range bindings.Items[i].Subjects {
				if !opens(&bindings.Items[i]) {
					continue
				}
				assert.NotEqual(t, wire.TenantNamespace("milan"), subject.Namespace, "%s/%s", namespace, bindings.Items[i].Name)
			}
		}
	}
	vault := &offloading.NamespaceOffloading{}
	require.NoError(t, rome.admin.Get(t.Context(), client.ObjectKey{Namespace: "vault", Name: offloading.NamespaceOffloadingName}, vault))
	assert.Equal(t, offloading.NoClusterSelectedOffloadingPhaseType, vault.Status.OffloadingPhase)
	assert.Empty(t, spied.all())
}
