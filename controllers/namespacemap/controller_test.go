// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/tenantlimits"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{
	ID:      "provider",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds", "../../api/crds/network"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// replicated returns a NamespaceMap as the replicator would write it on the provider.
func replicated(tenant, origin string, desired map[string]string) *offloading.NamespaceMap {
	return &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "provider", Labels: map[string]string{
			wire.ReplicationLabel: "false", wire.ReplicatedLabel: "true", wire.OriginIDLabel: origin, wire.RemoteClusterIDLabel: origin,
		}},
		Spec: offloading.NamespaceMapSpec{DesiredMapping: desired},
	}
}

// tenant returns the tenant namespace of a consumer.
func tenant(t *testing.T, origin string) string {
	t.Helper()
	name := provider.Namespace(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, wire.RemoteClusterIDLabel, origin))
	return name
}

type phases map[string]offloading.MappingPhase

func awaitPhases(t *testing.T, nm *offloading.NamespaceMap, want phases) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the mappings %v", want), func() error {
		provider.Get(t, nm, nm.Namespace, nm.Name)
		got := phases{}
		for local, status := range nm.Status.CurrentMapping {
			got[local] = status.Phase
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func remoteNamespace(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{}
	provider.Get(t, namespace, "", name)
	return namespace
}

func TestMakesRemoteNamespacesAndLetsTheConsumerIn(t *testing.T) {
	m := provider.StartManager(t)
	nm := replicated(tenant(t, "rome"), "rome", map[string]string{"shop": "shop-rome", "bank": "bank-rome"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted", "bank": "Accepted"})

	namespace := remoteNamespace(t, "shop-rome")
	if namespace.Annotations[wire.OriginalNameAnnotation] != "shop" || namespace.Labels[wire.RemoteClusterIDLabel] != "rome" {
		t.Errorf("remote namespace = %v", namespace.ObjectMeta)
	}
	binding := &rbacv1.RoleBinding{}
	provider.Get(t, binding, "shop-rome", nm.Namespace)
	if binding.Subjects[0].Kind != "Group" || binding.Subjects[0].Name != "rome" || binding.RoleRef.Name != "liqo-virtual-kubelet-remote" {
		t.Errorf("binding = %v %v", binding.Subjects, binding.RoleRef)
	}
	m.Stop(t)

	again := provider.StartManager(t)
	second := replicated(tenant(t, "oslo"), "oslo", map[string]string{"shop": "shop-oslo"})
	provider.Create(t, second)
	awaitPhases(t, second, phases{"shop": "Accepted"})
	if writes := again.Writes.About("rome"); len(writes) > 0 {
		t.Errorf("writes after a restart = %q, want none", writes)
	}
}

func TestOneRemoteNamespaceInTroubleDoesNotStopTheOthers(t *testing.T) {
	provider.StartManager(t)
	taken := provider.Namespace(t)
	nm := replicated(tenant(t, "pisa"), "pisa", map[string]string{"a": taken, "b": "b-pisa", "c": "Not A Name"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"a": "CreationLoopBackOff", "b": "Accepted", "c": "CreationLoopBackOff"})
	provider.AwaitEvent(t, nm.Namespace, "NamespaceMap", "provider", "FailedCreateNamespace")

	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"a":null,"c":null}}}`)
	awaitPhases(t, nm, phases{"b": "Accepted"})
	if namespace := remoteNamespace(t, taken); namespace.DeletionTimestamp != nil {
		t.Error("a namespace of another client was deleted")
	}
}

func TestALostRemoteNamespaceIsMadeAgain(t *testing.T) {
	t.Parallel()
	provider.StartManager(t)
	nm := replicated(tenant(t, "bari"), "bari", map[string]string{"shop": "shop-bari"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	lost := remoteNamespace(t, "shop-bari")
	provider.Delete(t, lost)
	controllertest.Eventually(t, "another remote namespace", func() error {
		namespace := &corev1.Namespace{}
		if err := provider.Client.Get(t.Context(), client.ObjectKey{Name: "shop-bari"}, namespace); err != nil {
			return err
		}
		if namespace.UID == lost.UID {
			return fmt.Errorf("it is the former one")
		}
		return nil
	})
	awaitPhases(t, nm, phases{"shop": "Accepted"})
}

// TestARemoteNamespaceIsMadeOnceTheWayIsFree checks that a retry detects that a namespace of another owner is gone,
// because such namespaces are not watched.
func TestARemoteNamespaceIsMadeOnceTheWayIsFree(t *testing.T) {
	t.Parallel() // in parallel, because Kubernetes takes five seconds to delete a namespace
	provider.StartManager(t)
	taken := provider.Namespace(t)
	nm := replicated(tenant(t, "noto"), "noto", map[string]string{"shop": taken})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "CreationLoopBackOff"})
	provider.Delete(t, remoteNamespace(t, taken))
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	if namespace := remoteNamespace(t, taken); namespace.Annotations[wire.OriginalNameAnnotation] != "shop" {
		t.Errorf("remote namespace = %v", namespace.ObjectMeta)
	}
}

// TestADeletionThatFailsIsRetried checks that a failed deletion is reported and retried, because no watch event shows
// that the deletion has become possible.
func TestADeletionThatFailsIsRetried(t *testing.T) {
	provider.StartManager(t)
	nm := replicated(tenant(t, "enna"), "enna", map[string]string{"shop": "shop-enna"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	mend := provider.Forbid(t, "delete", "namespaces")
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"shop":null}}}`)
	provider.AwaitEvent(t, nm.Namespace, "NamespaceMap", "provider", "FailedDeleteNamespace")
	if namespace := remoteNamespace(t, "shop-enna"); namespace.DeletionTimestamp != nil {
		t.Fatal("the remote namespace was deleted without the right to")
	}
	mend()
	controllertest.Eventually(t, "the remote namespace to go", func() error {
		namespace := &corev1.Namespace{}
		err := provider.Client.Get(t.Context(), client.ObjectKey{Name: "shop-enna"}, namespace)
		if err == nil && namespace.DeletionTimestamp == nil {
			return fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

func TestARemoteNamespaceIsDeletedWithItsMapping(t *testing.T) {
	t.Parallel() // in parallel, because Kubernetes takes five seconds to delete a namespace
	provider.StartManager(t)
	nm := replicated(tenant(t, "como"), "como", map[string]string{"shop": "shop-como", "bank": "bank-como"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted", "bank": "Accepted"})

	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"shop":null}}}`)
	awaitPhases(t, nm, phases{"shop": "Terminating", "bank": "Accepted"})
	if namespace := remoteNamespace(t, "bank-como"); namespace.DeletionTimestamp != nil {
		t.Error("the other remote namespace was deleted, too")
	}

	provider.Delete(t, nm)
	provider.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-como"}})
	provider.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank-como"}})
	provider.AwaitGone(t, nm)
}

// TestTwoNamespacesCannotHaveOneRemoteNamespace checks two mappings that request the same remote namespace. The first
// one gets it. The second one is refused, does not delete the namespace when it is removed, and gets its own remote
// namespace when the name is free.
func TestTwoNamespacesCannotHaveOneRemoteNamespace(t *testing.T) {
	t.Parallel() // in parallel, because Kubernetes takes five seconds to delete a namespace
	provider.StartManager(t)
	nm := replicated(tenant(t, "pisa"), "pisa", map[string]string{"shop": "one-pisa"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	first := remoteNamespace(t, "one-pisa")
	// The mapping of bank is first in alphabetical order, but is requested later.
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"bank":"one-pisa"}}}`)
	awaitPhases(t, nm, phases{"shop": "Accepted", "bank": "CreationLoopBackOff"})
	event := provider.AwaitEvent(t, nm.Namespace, "NamespaceMap", "provider", "FailedCreateNamespace")
	if !strings.Contains(event.Note, "one-pisa is the remote namespace of shop") || !strings.Contains(event.Note, "unoffload shop") {
		t.Errorf("note = %q, want whose remote namespace it is and the remedy", event.Note)
	}
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"bank":null}}}`)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	if now := remoteNamespace(t, "one-pisa"); now.UID != first.UID || now.DeletionTimestamp != nil {
		t.Error("the remote namespace of shop was deleted with the mapping of bank")
	}

	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"bank":"one-pisa"}}}`)
	awaitPhases(t, nm, phases{"shop": "Accepted", "bank": "CreationLoopBackOff"})
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"shop":null}}}`)
	awaitPhases(t, nm, phases{"bank": "Accepted"})
	if now := remoteNamespace(t, "one-pisa"); now.UID == first.UID || now.Annotations[wire.OriginalNameAnnotation] != "bank" {
		t.Errorf("remote namespace of bank = %v", now.ObjectMeta)
	}
}

// TestARemoteNamespaceThatIsInNoStatusIsKept checks that a map that was lost and created again without entries does not
// delete remote namespaces.
func TestARemoteNamespaceThatIsInNoStatusIsKept(t *testing.T) {
	provider.StartManager(t)
	space := tenant(t, "lodi")
	keeper := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-lodi", Labels: map[string]string{wire.RemoteClusterIDLabel: "lodi"},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: space + "/provider"},
	}}
	provider.Create(t, keeper)
	nm := replicated(space, "lodi", map[string]string{"bank": "bank-lodi"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"bank": "Accepted"})
	if namespace := remoteNamespace(t, "shop-lodi"); namespace.DeletionTimestamp != nil {
		t.Error("the remote namespace was deleted")
	}
}

func TestAConsumerCannotSpeakForAnother(t *testing.T) {
	m := provider.StartManager(t)
	nm := replicated(tenant(t, "mallory"), "alice", map[string]string{"shop": "shop-alice"})
	provider.Create(t, nm)
	provider.AwaitEvent(t, nm.Namespace, "NamespaceMap", "provider", "ForeignOrigin")
	if writes := m.Writes.About("POST", "/namespaces/shop-alice"); len(writes) > 0 {
		t.Errorf("writes = %q, want none", writes)
	}
}

// TestARemovedConsumerHasNoRights checks that a consumer loses its permissions in all its remote namespaces if its
// tenant namespace loses its label, even if the consumer changes or removes its map. Its workloads are kept. When the
// label is set again, the permissions are restored.
func TestARemovedConsumerHasNoRights(t *testing.T) {
	home := tenant(t, "genoa")
	m := provider.StartManager(t)
	nm := replicated(home, "genoa", map[string]string{"shop": home + "-shop", "bank": home + "-bank"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted, "bank": offloading.MappingAccepted})
	rights := func(want int) {
		t.Helper()
		controllertest.Eventually(t, fmt.Sprintf("%d subjects", want), func() error {
			for _, remoteNamespace := range []string{home + "-shop", home + "-bank"} {
				binding := &rbacv1.RoleBinding{}
				if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: remoteNamespace, Name: home}, binding); err != nil {
					return err
				}
				if len(binding.Subjects) != want {
					return fmt.Errorf("%s lets in %v", remoteNamespace, binding.Subjects)
				}
			}
			return nil
		})
	}
	rights(2)
	label := func(value string) {
		provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, wire.RemoteClusterIDLabel, value))
	}
	label("null")
	rights(0)
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"more":"`+home+`-more"}}}`)
	m.Stop(t)
	provider.StartManager(t)
	provider.AwaitEvent(t, home, "NamespaceMap", "provider", "ForeignOrigin")
	rights(0)
	remoteNamespace(t, home+"-shop")
	if !isAbsent(t, home+"-more") {
		t.Error("a consumer without rights got a namespace")
	}
	label(`"genoa"`)
	rights(2)

	// The consumer may change its map so that the map is no longer used.
	provider.Patch(t, nm, fmt.Sprintf(`{"metadata":{"labels":{%q:"somebody-else"}}}`, wire.OriginIDLabel))
	label("null")
	rights(0)
	label(`"genoa"`)
	provider.Patch(t, nm, fmt.Sprintf(`{"metadata":{"labels":{%q:"genoa"}}}`, wire.OriginIDLabel))
	rights(2)
	provider.Patch(t, nm, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, wire.ReplicatedLabel))
	label("null")
	rights(0)
}

// TestNoTenantNamespaceNoNamespaces checks that the maps in a namespace that is not a tenant namespace grant no
// permissions.
func TestNoTenantNamespaceNoNamespaces(t *testing.T) {
	unlabelled := provider.Namespace(t)
	provider.StartManager(t)
	nm := replicated(unlabelled, "rome", map[string]string{"shop": unlabelled + "-shop"})
	provider.Create(t, nm)
	provider.AwaitEvent(t, nm.Namespace, "NamespaceMap", "provider", "ForeignOrigin")
	err := provider.Client.Get(t.Context(), types.NamespacedName{Name: unlabelled + "-shop"}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the namespace: %v, want it not to be there", err)
	}
}

func limits(t *testing.T, setting *tenantlimits.Setting, value string) tenantlimits.Limits {
	t.Helper()
	all, err := tenantlimits.New(map[string]string{setting.Name: value})
	require.NoError(t, err)
	return all
}

// TestNamesAndLevelsOfNamespaces checks that consumers cannot use the names of system namespaces, and that remote
// namespaces have a Pod Security level.
func TestNamesAndLevelsOfNamespaces(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t, func(o *controllers.Options) {
		o.Tenancy = tenancy.Options{Levels: map[string]string{"rome": "restricted"}, ReservedPrefixes: []string{"prod-"},
			NamePatterns: map[string]string{"rome": "[^e].*[^y]"}}
		o.Installation = "refract-here"
	})
	desired := map[string]string{"shop": home + "-shop"}
	want := phases{"shop": offloading.MappingAccepted}
	for n, name := range []string{"kube-system", "kube-anything", "openshift-config", "default", "liqo", "liqo-tenant-milan", "refract-here", "prod-shop", "x-shop-y", "elsewhere"} {
		local := fmt.Sprintf("asked-%d", n)
		desired[local], want[local] = name, offloading.MappingCreationLoopBackOff
	}
	nm := replicated(home, "rome", desired)
	provider.Create(t, nm)
	awaitPhases(t, nm, want)
	namespace := &corev1.Namespace{}
	provider.Get(t, namespace, "", home+"-shop")
	if level := namespace.Labels[tenancy.EnforceLabel]; level != "restricted" {
		t.Errorf("the Pod Security level is %q", level)
	}
	if !isAbsent(t, "prod-shop") {
		t.Error("a reserved namespace was created")
	}
}

// TestLimitsAreCopied checks that the limits of a consumer are set on its tenant namespace, and apply in its remote
// namespaces.
func TestLimitsAreCopied(t *testing.T) {
	home := tenant(t, "rome")
	tenantNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}
	limit := func(value string) {
		provider.Patch(t, tenantNamespace, fmt.Sprintf(`{"metadata":{"annotations":{"tenants.refract.io/scheduler-names":%s}}}`, value))
	}
	limit(`"batch"`)
	provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	await := func(want string) {
		t.Helper()
		controllertest.Eventually(t, "the limit of the remote namespace", func() error {
			namespace := &corev1.Namespace{}
			if err := provider.Client.Get(t.Context(), types.NamespacedName{Name: home + "-shop"}, namespace); err != nil {
				return err
			}
			if got := namespace.Annotations["tenants.refract.io/scheduler-names"]; got != want {
				return fmt.Errorf("the limit is %q, want %q", got, want)
			}
			return nil
		})
	}
	await("batch")
	limit(`"batch,other"`)
	await("batch,other")
	limit("null")
	await("")
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home + "-shop"}}, `{"metadata":{"annotations":{"tenants.refract.io/scheduler-names":"*"}}}`)
	await("")
}

func isAbsent(t *testing.T, namespace string) bool {
	t.Helper()
	return apierrors.IsNotFound(provider.Client.Get(t.Context(), types.NamespacedName{Name: namespace}, &corev1.Namespace{}))
}

// TestNumberOfNamespaces checks that a consumer gets at most its maximum number of namespaces. It gets another
// namespace only after it has given one up.
func TestNumberOfNamespaces(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t, func(o *controllers.Options) { o.Tenancy.Limits = limits(t, tenantlimits.MaxNamespaces, "2") })
	nm := replicated(home, "rome", map[string]string{"a": home + "-a", "b": home + "-b", "c": home + "-c"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"a": offloading.MappingAccepted, "b": offloading.MappingAccepted, "c": offloading.MappingCreationLoopBackOff})
	if message := nm.Status.CurrentMapping["c"].Message; !strings.Contains(message, "limit of 2 namespaces") {
		t.Errorf("the third one is refused with the message %q", message)
	}
	if !isAbsent(t, home+"-c") {
		t.Error("there are three namespaces")
	}
	// A second map does not raise the limit.
	second := replicated(home, "rome", map[string]string{"d": home + "-d"})
	second.Name = "another"
	provider.Create(t, second)
	provider.AwaitEvent(t, home, "NamespaceMap", "another", "WrongName")
	if !isAbsent(t, home+"-d") {
		t.Error("there are three namespaces by two maps")
	}
}

// TestRefusedNamespacesSayWhy checks that the status contains the reason for each refused namespace, because users of
// the consumer cannot read Events on the provider.
func TestRefusedNamespacesSayWhy(t *testing.T) {
	home := tenant(t, "rome")
	foreign := provider.Namespace(t)
	allow := provider.Deny(t, "no-such-namespace", admissionv1.Create, "", "namespaces", home+"-denied", func(c client.Client) error {
		return c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home + "-denied", Labels: map[string]string{wire.RemoteClusterIDLabel: "rome", tenancy.EnforceLabel: "baseline"},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: home + "/provider", wire.OriginalNameAnnotation: "f-denied"}}}, client.DryRunAll)
	})
	m := provider.StartManager(t)
	nm := replicated(home, "rome", map[string]string{
		"a-shop": home + "-shop", "b-same": home + "-shop", "c-reserved": "kube-anything", "d-long": strings.Repeat("n", 64), "e-taken": foreign, "f-denied": home + "-denied",
	})
	provider.Create(t, nm)
	await := func(want map[string]string) {
		t.Helper()
		controllertest.Eventually(t, "the reasons", func() error {
			provider.Get(t, nm, nm.Namespace, nm.Name)
			for local, part := range want {
				if status := nm.Status.CurrentMapping[local]; !strings.Contains(status.Message, part) || (part == "") != (status.Message == "") || (part == "") != (status.Phase == offloading.MappingAccepted) {
					return fmt.Errorf("%s is %+v, want a message with %q", local, status, part)
				}
			}
			return nil
		})
	}
	await(map[string]string{
		"a-shop": "", "b-same": "is the remote namespace of a-shop", "c-reserved": `begin with "kube-" are reserved`, "d-long": "not a valid name",
		"e-taken": "was not created for this NamespaceMap", "f-denied": "the test denies this",
	})
	allow()
	provider.Patch(t, nm, `{"spec":{"desiredMapping":{"b-same":null,"c-reserved":null,"d-long":null,"e-taken":null}}}`)
	await(map[string]string{"a-shop": "", "f-denied": ""})
	if len(m.Writes.Denied()) == 0 {
		t.Error("the policy denied nothing")
	}
}
