// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/replicator"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	options  = testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}
	consumer = controllertest.Cluster{ID: "home", Options: options}
	provider = controllertest.Cluster{ID: "cloud", Options: options}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

// peer gives the consumer access to a tenant namespace on the provider. It returns the names of the tenant namespaces
// in both clusters. id is the ID of the provider.
func peer(t *testing.T, id string) (here, there string) {
	t.Helper()
	here, there = consumer.Namespace(t), provider.Namespace(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, provider.KubeconfigFor(path, "kubelet-of-home", consumer.ID))
	kubeconfig, err := os.ReadFile(path)
	require.NoError(t, err)
	group := rbac.Peer("", consumer.ID)
	require.NoError(t, provider.Grant(t.Context(), append(group.Objects(), group.TenantNamespace(there))...))
	secret := "kubeconfig-controlplane-" + id
	grantSecret(t, here, secret)
	consumer.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: secret, Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: there}},
		Data:       map[string][]byte{wire.KubeconfigSecretKey: kubeconfig},
	})
	return here, there
}

// grantSecret lets the consumer's controllers read one Secret.
func grantSecret(t *testing.T, namespace, name string) {
	t.Helper()
	manager := rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, consumer.Grant(t.Context(), manager.Provider(namespace, name)...))
}

// outgoing returns a NamespaceMap as the consumer creates it.
func outgoing(namespace, id string, desired map[string]string) *offloading.NamespaceMap {
	return &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: map[string]string{
			wire.ReplicationLabel: "true", wire.RemoteIDLabel: id, wire.RemoteClusterIDLabel: id,
		}},
		Spec: offloading.NamespaceMapSpec{DesiredMapping: maps.Clone(desired)},
	}
}

func awaitDesired(t *testing.T, c *controllertest.Cluster, namespace, name string, want map[string]string) *offloading.NamespaceMap {
	t.Helper()
	nm := &offloading.NamespaceMap{}
	controllertest.Eventually(t, fmt.Sprintf("the mapping %v in %s", want, c.ID), func() error {
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, nm); err != nil {
			return err
		}
		if !maps.Equal(nm.Spec.DesiredMapping, want) {
			return fmt.Errorf("it is %v", nm.Spec.DesiredMapping)
		}
		return nil
	})
	return nm
}

func TestAMapTravelsAndItsStatusComesBack(t *testing.T) {
	here, there := peer(t, "cloud")
	first := consumer.StartManager(t)
	local := outgoing(here, "cloud", map[string]string{"shop": "shop-home"})
	consumer.Create(t, local)
	copied := awaitDesired(t, &provider, there, "cloud", map[string]string{"shop": "shop-home"})
	if copied.Labels[wire.ReplicationLabel] != "false" || copied.Labels[wire.ReplicatedLabel] != "true" ||
		copied.Labels[wire.OriginIDLabel] != "home" || copied.Labels[wire.RemoteClusterIDLabel] != "home" {
		t.Errorf("labels of the copy = %v", copied.Labels)
	}
	provider.PatchStatus(t, copied, `{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-home","phase":"Accepted"}}}}`)
	controllertest.Eventually(t, "the answer", func() error {
		consumer.Get(t, local, here, "cloud")
		if local.Status.CurrentMapping["shop"].Phase != offloading.MappingAccepted {
			return fmt.Errorf("status is %v", local.Status)
		}
		return nil
	})
	first.Stop(t)
	if n := first.Metric(t, "refract_controller_api_writes_total", "controller", "replicator", "verb", "create", "destination", "provider"); n < 1 {
		t.Errorf("%v maps were created on providers according to the metrics, want 1", n)
	}

	second := consumer.StartManager(t)
	consumer.Patch(t, local, `{"spec":{"desiredMapping":{"shop":null,"bank":"bank-home"}}}`)
	awaitDesired(t, &provider, there, "cloud", map[string]string{"bank": "bank-home"})
	if writes := second.Writes.About(here); len(writes) != 0 {
		t.Errorf("writes in the consumer after a restart = %q, want none", writes)
	}
	consumer.Delete(t, local)
	provider.AwaitGone(t, copied)
	consumer.AwaitGone(t, local)
}

// TestAMapThatIsNotDeletedAnyMore checks that if the deletion of a map was undone by restoring a backup, the map is not
// deleted on the provider while the cache is outdated.
func TestAMapThatIsNotDeletedAnyMore(t *testing.T) {
	here, there := peer(t, "ravenna")
	m := consumer.StartManager(t)
	local := outgoing(here, "ravenna", map[string]string{"shop": "shop-home"})
	consumer.Create(t, local)
	copied := awaitDesired(t, &provider, there, "ravenna", map[string]string{"shop": "shop-home"})
	m.Stop(t)
	consumer.Get(t, local, here, "ravenna")
	c := replicator.NewController(controllertest.Behind(consumer.Client, controllertest.Deleted(local)), consumer.Client, events.NewFakeRecorder(10),
		replicator.Options{ClusterID: "home", Observe: func(c client.Client) client.Client { return c }})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(local)})
	assert.ErrorContains(t, err, "is not as the cache shows it")
	provider.Get(t, copied, there, "ravenna")
	assert.Nil(t, copied.DeletionTimestamp)
}

// replica returns a NamespaceMap as it is stored on the provider.
func replica(namespace, id string, desired map[string]string) *offloading.NamespaceMap {
	copied := outgoing(namespace, id, desired)
	copied.Labels = map[string]string{wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: "home"}
	return copied
}

// TestANewMapIsNotFilledByTheProvider checks that an entry that a provider has written to its copy does not become a
// desired entry on the consumer. If a consumer has lost its map and creates a new one, the provider must keep the
// namespaces until they are requested and withdrawn.
func TestANewMapIsNotFilledByTheProvider(t *testing.T) {
	here, there := peer(t, "vault")
	provider.Create(t, replica(there, "vault", map[string]string{"shop": "shop-home", "bank": "old", "kube-system": "ks-home", "mail": "mail-home"}))
	manager := consumer.StartManager(t)
	local := outgoing(here, "vault", map[string]string{"bank": "new", "mail": "mail-home"})
	consumer.Create(t, local)
	event := consumer.AwaitEvent(t, here, "NamespaceMap", "vault", "RemoteNamespacesNotRequested")
	for _, words := range []string{`"shop-home" (of namespace "shop")`, `"ks-home" (of namespace "kube-system")`, `"bank" is "old" there, and not "new"`, "offload its namespace"} {
		assert.Contains(t, event.Note, words)
	}
	provided := map[string]string{"shop": "shop-home", "bank": "old", "kube-system": "ks-home", "mail": "mail-home"}
	awaitDesired(t, &provider, there, "vault", provided)
	awaitDesired(t, &consumer, here, "vault", map[string]string{"bank": "new", "mail": "mail-home"})

	// Another manager process offloads the namespace of the entry again, and then withdraws it.
	manager.Stop(t)
	consumer.StartManager(t)
	consumer.Patch(t, local, `{"spec":{"desiredMapping":{"shop":"shop-home","book":"book-home"}}}`)
	provided["book"] = "book-home"
	awaitDesired(t, &provider, there, "vault", provided)
	consumer.Patch(t, local, `{"spec":{"desiredMapping":{"shop":null,"mail":null}}}`)
	delete(provided, "shop")
	delete(provided, "mail")
	awaitDesired(t, &provider, there, "vault", provided)
	awaitDesired(t, &consumer, here, "vault", map[string]string{"bank": "new", "book": "book-home"})
}

// TestARestoredMapDeletesNothing checks that the remote namespace is not deleted if a map that was restored from a
// backup lacks the latest namespace.
func TestARestoredMapDeletesNothing(t *testing.T) {
	here, there := peer(t, "ark")
	provider.Create(t, replica(there, "ark", map[string]string{"shop": "shop-home", "latest": "latest-home"}))
	local := outgoing(here, "ark", map[string]string{"shop": "shop-home"})
	local.Finalizers = []string{wire.ReplicatorFinalizer}
	consumer.Create(t, local)
	consumer.StartManager(t)
	consumer.AwaitEvent(t, here, "NamespaceMap", "ark", "RemoteNamespacesNotRequested")
	consumer.Patch(t, local, `{"spec":{"desiredMapping":{"other":"other-home"}}}`)
	awaitDesired(t, &provider, there, "ark", map[string]string{"shop": "shop-home", "latest": "latest-home", "other": "other-home"})
}

// TestACopyThatWasChangedIsRepaired checks that a requested entry is restored if it was changed on the provider.
func TestACopyThatWasChangedIsRepaired(t *testing.T) {
	here, there := peer(t, "loom")
	consumer.StartManager(t)
	local := outgoing(here, "loom", map[string]string{"shop": "shop-home"})
	consumer.Create(t, local)
	copied := awaitDesired(t, &provider, there, "loom", local.Spec.DesiredMapping)
	provider.Patch(t, copied, `{"spec":{"desiredMapping":{"shop":"elsewhere"}}}`)
	awaitDesired(t, &provider, there, "loom", local.Spec.DesiredMapping)
}

// TestWhatIsNotOutgoingIsNotReplicated checks that NamespaceMaps from a peer that is also a consumer of this cluster
// are not replicated, although they are in the same namespace.
func TestWhatIsNotOutgoingIsNotReplicated(t *testing.T) {
	here, there := peer(t, "pisa")
	incoming, second := replica(here, "home", map[string]string{"a": "a-pisa"}), outgoing(here, "second", map[string]string{"finance": "finance-home"})
	second.Labels[wire.RemoteIDLabel] = "pisa"
	both := outgoing(here, "pisa", map[string]string{"finance": "finance-home"})
	both.Labels[wire.ReplicatedLabel], both.Labels[wire.OriginIDLabel] = "true", "pisa"
	for _, nm := range []*offloading.NamespaceMap{incoming, second, both} {
		consumer.Create(t, nm)
	}
	m := consumer.StartManager(t)
	consumer.Create(t, outgoing(here, "marker", nil))
	consumer.AwaitEvent(t, here, "NamespaceMap", "marker", "ProviderNotReachable")
	copies := &offloading.NamespaceMapList{}
	require.NoError(t, provider.Client.List(t.Context(), copies, client.InNamespace(there)))
	assert.Empty(t, copies.Items)
	assert.Zero(t, m.Metric(t, "refract_controller_api_writes_total", "controller", "replicator", "verb", "create", "destination", "provider"))
}

func TestAForeignMapOfTheProviderIsLeftAlone(t *testing.T) {
	here, there := peer(t, "taken")
	theirs := outgoing(there, "taken", map[string]string{"a": "b"})
	theirs.Labels = map[string]string{"owner": "somebody"}
	provider.Create(t, theirs)
	consumer.StartManager(t)
	consumer.Create(t, outgoing(here, "taken", map[string]string{"shop": "shop-home"}))
	consumer.AwaitEvent(t, here, "NamespaceMap", "taken", "FailedReplication")
	awaitDesired(t, &provider, there, "taken", map[string]string{"a": "b"})
}

// unreachable creates the Secret of a provider whose API server has the given address.
func unreachable(t *testing.T, namespace, id, address string) {
	t.Helper()
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
		"clusters":[{"name":"a","cluster":{"server":"https://%s"}}],"users":[{"name":"a","user":{"token":"x"}}]}`, address)
	grantSecret(t, namespace, "kubeconfig-controlplane-"+id)
	consumer.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubeconfig-controlplane-" + id},
		Data:       map[string][]byte{wire.KubeconfigSecretKey: []byte(kubeconfig)},
	})
	consumer.Create(t, outgoing(namespace, id, map[string]string{"shop": "shop-home"}))
}

// TestADeadProviderIsNamed checks that an unreachable provider is reported, and that a provider that is declared dead
// does not prevent the deletion of its map.
func TestADeadProviderIsNamed(t *testing.T) {
	dead := consumer.Namespace(t)
	unreachable(t, dead, "dead-0", "127.0.0.1:1")
	unreachable(t, dead, "dead-1", "127.0.0.1:1")
	consumer.Create(t, outgoing(dead, "stranger", map[string]string{"shop": "shop-home"}))
	consumer.StartManager(t)
	for name, want := range map[string]string{"stranger": "no kubeconfig for the provider", "dead-1": "provider dead-1 does not respond"} {
		if event := consumer.AwaitEvent(t, dead, "NamespaceMap", name, "ProviderNotReachable"); !strings.Contains(event.Note, want) {
			t.Errorf("note = %q, want %q in it", event.Note, want)
		}
	}

	gone := outgoing(dead, "dead-0", nil)
	consumer.Patch(t, gone, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, wire.ReplicatorFinalizer))
	consumer.Create(t, &core.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "dead-0", Annotations: map[string]string{wire.PermanentlyUnreachableAnnotation: "true"}},
		Spec:       core.ForeignClusterSpec{ClusterID: "dead-0"},
	})
	consumer.Delete(t, gone)
	consumer.AwaitGone(t, gone)
}

// TestAMapIsNotSentToAnotherCluster checks that no namespaces are requested if the kubeconfig leads to another cluster
// than the provider.
func TestAMapIsNotSentToAnotherCluster(t *testing.T) {
	here, there := peer(t, "pisa")
	provider.Create(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: wire.HeartbeatLease,
		Annotations: map[string]string{wire.ClusterIDAnnotation: "milan"}}})
	consumer.Create(t, outgoing(here, "pisa", map[string]string{"shop": "shop-home"}))
	consumer.StartManager(t)
	event := consumer.AwaitEvent(t, here, "NamespaceMap", "pisa", "ProviderNotReachable")
	assert.Contains(t, event.Note, `belongs to cluster "milan", not "pisa"`)
	maps := &offloading.NamespaceMapList{}
	require.NoError(t, provider.Client.List(t.Context(), maps, client.InNamespace(there)))
	assert.Empty(t, maps.Items)
}

// blackHole accepts connections, but does not respond. It returns its address, and a function that returns the number
// of open connections.
func blackHole(t *testing.T) (address string, held func() int) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var connections []net.Conn
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			connections = append(connections, connection)
			mu.Unlock()
		}
	}()
	held = func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(connections)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, connection := range connections {
			_ = connection.Close()
		}
	})
	return listener.Addr().String(), held
}

// TestManySilentProvidersBlockNobody checks that any number of unresponsive providers, each of which takes ten seconds
// to time out, does not delay other providers. Four shared workers would all be blocked for minutes.
func TestManySilentProvidersBlockNobody(t *testing.T) {
	const silent = 40
	lost := consumer.Namespace(t)
	address, held := blackHole(t)
	for i := range silent {
		unreachable(t, lost, fmt.Sprint("silent-", i), address)
	}
	here, there := peer(t, "alive")
	consumer.StartManager(t)
	controllertest.Eventually(t, "all providers to be asked", func() error {
		if n := held(); n < silent {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	asked := time.Now()
	consumer.Create(t, outgoing(here, "alive", map[string]string{"shop": "shop-home"}))
	awaitDesired(t, &provider, there, "alive", map[string]string{"shop": "shop-home"})
	if took := time.Since(asked); took > 5*time.Second {
		t.Errorf("the map of a provider that answers took %s", took)
	}
}

func TestAProviderThatRefusesIsNamed(t *testing.T) {
	here, there := peer(t, "strict")
	consumer.StartManager(t)
	provider.Delete(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "liqo-remote-controlplane-home"}})
	consumer.Create(t, outgoing(here, "strict", map[string]string{"shop": "shop-home"}))
	if event := consumer.AwaitEvent(t, here, "NamespaceMap", "strict", "FailedReplication"); !strings.Contains(event.Note, "provider strict refused the request") {
		t.Errorf("note = %q, want the provider in it", event.Note)
	}
}

// TestANamespaceIsExtended runs the controller managers of the consumer and the provider, which together offload a
// namespace.
func TestANamespaceIsExtended(t *testing.T) {
	here, there := peer(t, "far")
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"home"}}}`, wire.RemoteClusterIDLabel))
	consumer.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here}}, fmt.Sprintf(
		`{"metadata":{"labels":{%q:"true",%q:"far"}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel))
	consumer.StartManager(t)
	provider.StartManager(t, func(o *controllers.Options) { o.ClusterID = "far" })
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "far"},
		Spec:       offloading.VirtualNodeSpec{ClusterID: "far", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig-controlplane-far"}},
	}
	consumer.Create(t, vn)
	namespace := consumer.Namespace(t)
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
	consumer.Create(t, nso)
	controllertest.Eventually(t, "the namespace to be offloaded", func() error {
		consumer.Get(t, nso, namespace, nso.Name)
		if nso.Status.OffloadingPhase != offloading.ReadyOffloadingPhaseType {
			return fmt.Errorf("status is %+v", nso.Status)
		}
		return nil
	})
	remoteNamespace := &corev1.Namespace{}
	provider.Get(t, remoteNamespace, "", namespace+"-home")
	consumer.Delete(t, nso)
	provider.AwaitGone(t, remoteNamespace)
	consumer.AwaitGone(t, nso)
}

// TestWhatIsNotAskedForIsNotAnswered checks that a provider cannot offload a namespace that was not requested.
func TestWhatIsNotAskedForIsNotAnswered(t *testing.T) {
	here, there := peer(t, "pushy")
	consumer.StartManager(t)
	nm := outgoing(here, "pushy", map[string]string{"shop": "shop-home"})
	consumer.Create(t, nm)
	copied := awaitDesired(t, &provider, there, "pushy", map[string]string{"shop": "shop-home"})
	provider.PatchStatus(t, copied, `{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-home","phase":"Accepted"},`+
		`"kube-system":{"remoteNamespace":"mine","phase":"Accepted"}}}}`)
	controllertest.Eventually(t, "the answer", func() error {
		consumer.Get(t, nm, here, "pushy")
		if nm.Status.CurrentMapping["shop"].Phase != offloading.MappingAccepted {
			return fmt.Errorf("the status is %v", nm.Status.CurrentMapping)
		}
		return nil
	})
	if len(nm.Status.CurrentMapping) != 1 {
		t.Errorf("the status is %v", nm.Status.CurrentMapping)
	}
}

// TestMessagesOfAProviderAreHarmless checks that the consumer shortens and escapes a provider's message about a refused
// namespace.
func TestMessagesOfAProviderAreHarmless(t *testing.T) {
	here, there := peer(t, "chatty")
	consumer.StartManager(t)
	nm := outgoing(here, "chatty", map[string]string{"shop": "shop-home"})
	consumer.Create(t, nm)
	copied := awaitDesired(t, &provider, there, "chatty", map[string]string{"shop": "shop-home"})
	message := "no\x1b[2J\u202e:\n" + strings.Repeat("x", 100_000)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"currentMapping": map[string]any{
		"shop": map[string]any{"remoteNamespace": "shop-home", "phase": "CreationLoopBackOff", "message": message}}}})
	require.NoError(t, err)
	provider.PatchStatus(t, copied, string(patch))
	controllertest.Eventually(t, "the message", func() error {
		consumer.Get(t, nm, here, "chatty")
		if nm.Status.CurrentMapping["shop"].Message == "" {
			return fmt.Errorf("the status is %v", nm.Status.CurrentMapping)
		}
		return nil
	})
	got := nm.Status.CurrentMapping["shop"].Message
	if !printable.IsLine(got) || len(got) > offloading.MaxMappingMessage || !strings.HasPrefix(got, `no\u001b[2J\u202e: xxx`) {
		t.Errorf("the message of %d bytes is %.80q", len(got), got)
	}
}
