// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/network"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var rome = controllertest.Cluster{
	ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds", "../../api/crds/network"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &rome)) }

func enable(o *controllers.Options) { o.Addresses.Enabled = true }

// start starts the controllers. The cluster has the default pod range of kubeadm, and an external range.
func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, rome.Grant(t.Context(), manager.Addresses()...))
	for _, n := range []*ipam.Network{
		networkOf("pod-cidr", "10.244.0.0/16", map[string]string{
			wire.NetworkTypeLabel: wire.PodNetwork, wire.NetworkNotRemappedLabel: "true",
		}),
		networkOf("external-cidr", "10.70.0.0/16", map[string]string{wire.NetworkTypeLabel: wire.ExternalNetwork}),
	} {
		if rome.Client.Get(t.Context(), client.ObjectKeyFromObject(n), &ipam.Network{}) != nil {
			rome.Create(t, n)
		}
	}
	return rome.StartManager(t, enable)
}

func networkOf(name, cidr string, labels map[string]string) *ipam.Network {
	return &ipam.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      name,
			Labels:    labels,
		},
		Spec: ipam.NetworkSpec{CIDR: networking.CIDR(cidr)},
	}
}

// tenant creates the tenant namespace of a peer.
func tenant(t *testing.T, id string) string {
	t.Helper()
	namespace := rome.Namespace(t)
	rome.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:%q}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, id))
	return namespace
}

// configure creates a Configuration with the given ranges of a peer.
func configure(t *testing.T, namespace, id, external string, pods ...networking.CIDR) *networking.Configuration {
	t.Helper()
	c := &networking.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, Labels: map[string]string{wire.RemoteClusterIDLabel: id}},
	}
	c.Spec.Remote.CIDR = networking.ClusterConfigCIDR{Pod: pods, External: []networking.CIDR{networking.CIDR(external)}}
	rome.Create(t, c)
	return c
}

// await waits until the condition of a Configuration has the given reason. It returns the Configuration and the
// message.
func await(t *testing.T, c *networking.Configuration, reason string) (*networking.Configuration, string) {
	t.Helper()
	found, message := &networking.Configuration{}, ""
	controllertest.Eventually(t, "Configuration "+c.Name+" to be "+reason, func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(c), found); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, networking.ConfiguredCondition)
		if condition == nil || condition.Reason != reason || condition.ObservedGeneration != found.Generation {
			return fmt.Errorf("the condition is %v", condition)
		}
		message = condition.Message
		return nil
	})
	return found, message
}

// TestPeersWithOurRanges checks that two peers that use the ranges of this cluster are given other ranges of the same
// size. These ranges must not change after a restart, or after a change of the Configuration.
func TestPeersWithOurRanges(t *testing.T) {
	m := start(t)
	milan, _ := await(
		t,
		configure(t, tenant(t, "milan"), "milan", "10.70.0.0/16", "10.244.0.0/16", "10.50.0.0/24"),
		"NetworkCIDRsConfigured",
	)
	assert.Equal(t, []networking.CIDR{"10.244.0.0/16"}, milan.Spec.Local.CIDR.Pod)
	assert.Equal(t, []networking.CIDR{"10.70.0.0/16"}, milan.Spec.Local.CIDR.External)
	require.Len(t, milan.Status.Remote.CIDR.Pod, 2)
	require.Len(t, milan.Status.Remote.CIDR.External, 1)
	assert.Equal(t, networking.CIDR("10.50.0.0/24"), milan.Status.Remote.CIDR.Pod[1], "nobody else has this range")
	turin, _ := await(t, configure(t, tenant(t, "turin"), "turin", "10.70.0.0/16", "10.244.0.0/16"), "NetworkCIDRsConfigured")
	seen := map[networking.CIDR]bool{"10.244.0.0/16": true, "10.70.0.0/16": true}
	for _, c := range []*networking.Configuration{milan, turin} {
		for _, granted := range []networking.CIDR{c.Status.Remote.CIDR.Pod[0], c.Status.Remote.CIDR.External[0]} {
			assert.False(t, seen[granted], "%s is in use", granted)
			assert.True(t, strings.HasSuffix(string(granted), "/16"), granted)
			seen[granted] = true
		}
	}
	controllertest.Eventually(t, "the label for Liqo before 1.2", func() error {
		found := &networking.Configuration{}
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(turin), found); err != nil {
			return err
		}
		if found.Labels[wire.ConfiguredLabel] != "true" {
			return fmt.Errorf("the labels are %v", found.Labels)
		}
		return nil
	})
	m.Stop(t)

	second := rome.StartManager(t, enable)
	rome.Patch(t, milan.DeepCopy(), `{"spec":{"remote":{"cidr":{"pod":["10.244.0.0/16"]}}}}`)
	after := &networking.Configuration{}
	controllertest.Eventually(t, "the status of the shorter list", func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(milan), after); err != nil {
			return err
		}
		if len(after.Status.Remote.CIDR.Pod) != 1 {
			return fmt.Errorf("there are %q", after.Status.Remote.CIDR.Pod)
		}
		return nil
	})
	assert.Equal(t, milan.Status.Remote.CIDR.Pod[0], after.Status.Remote.CIDR.Pod[0], "a grant does not change")
	rome.AwaitGone(t, &ipam.Network{ObjectMeta: metav1.ObjectMeta{Namespace: milan.Namespace, Name: "milan-pod-10-50-0-0-24"}})
	assert.Empty(t, second.Writes.About("/"+turin.Namespace+"/"), "nothing has changed there")
}

// TestRefusedConfigurations checks that invalid ranges of a peer are refused with a message that contains the range and
// the remedy. Ranges that were granted before must be kept.
func TestRefusedConfigurations(t *testing.T) {
	start(t)
	many := make([]networking.CIDR, 17)
	for i := range many {
		many[i] = networking.CIDR(fmt.Sprintf("10.60.%d.0/24", i))
	}
	for id, c := range map[string]struct {
		pods         []networking.CIDR
		reason, says string
	}{
		"all":       {[]networking.CIDR{"0.0.0.0/0"}, "RangeRefused", "0.0.0.0/0"},
		"loopback":  {[]networking.CIDR{"127.0.0.0/8"}, "RangeRefused", "127.0.0.0/8"},
		"tunnel":    {[]networking.CIDR{"169.254.18.0/30"}, "RangeRefused", "169.254.18.0/30"},
		"many":      {many, "RangeRefused", "at most 16"},
		"six":       {[]networking.CIDR{"fd00::/64"}, "RangeRefused", "fd00::/64"},
		"overlaps":  {[]networking.CIDR{"10.1.0.0/16", "10.1.2.0/24"}, "RangeRefused", "name each address once"},
		"exhausted": {[]networking.CIDR{"10.0.0.0/8"}, "PoolExhausted", "10.244.0.0/16 by Network default/pod-cidr"},
	} {
		t.Run(id, func(t *testing.T) {
			found, message := await(t, configure(t, tenant(t, id), id, "192.168.0.0/24", c.pods...), c.reason)
			assert.Contains(t, message, c.says)
			assert.Nil(t, found.Status.Remote)
			rome.AwaitEvent(t, found.Namespace, "Configuration", id, c.reason)
			rome.Delete(t, found)
		})
	}
	t.Run("another cluster", func(t *testing.T) {
		found, message := await(t, configure(t, tenant(t, "genoa"), "parma", "10.90.0.0/16", "10.51.0.0/16"), "WrongCluster")
		assert.Contains(t, message, "genoa")
		networks := &ipam.NetworkList{}
		require.NoError(t, rome.Client.List(t.Context(), networks, client.InNamespace(found.Namespace)))
		assert.Empty(t, networks.Items)
	})
	t.Run("a second one", func(t *testing.T) {
		namespace := tenant(t, "lucca")
		lucca, _ := await(t, configure(t, namespace, "lucca", "10.93.0.0/16", "10.53.0.0/16"), "NetworkCIDRsConfigured")
		second := lucca.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{
			Namespace: namespace,
			Name:      "more",
			Labels:    map[string]string{wire.RemoteClusterIDLabel: "lucca"},
		}
		second.Spec.Remote.CIDR.Pod = []networking.CIDR{"10.54.0.0/16"}
		rome.Create(t, second)
		_, message := await(t, second, "AnotherConfiguration")
		assert.Contains(t, message, "Configuration lucca")
		assert.ElementsMatch(t, []string{"lucca-external-10-93-0-0-16", "lucca-pod-10-53-0-0-16"}, networksIn(t, namespace))
		rome.Delete(t, lucca)
		await(t, second, "NetworkCIDRsConfigured") // it takes the place of the first Configuration
	})
	t.Run("many in turn", func(t *testing.T) {
		namespace := tenant(t, "prato")
		prato, _ := await(t, configure(t, namespace, "prato", "10.94.0.0/16", "10.55.0.0/16"), "NetworkCIDRsConfigured")
		// The peer requests a range that cannot be granted, each time together with another range.
		for _, wish := range []string{"10.56.0.0/24", "10.57.0.0/24"} {
			rome.Patch(t, prato.DeepCopy(), fmt.Sprintf(`{"spec":{"remote":{"cidr":{"pod":[%q,"11.0.0.0/8"]}}}}`, wish))
			found, _ := await(t, prato, "PoolExhausted")
			assert.Equal(t, prato.Status.Remote, found.Status.Remote)
		}
		controllertest.Eventually(t, "the published Networks and those of the spec alone", func() error {
			want := []string{"prato-external-10-94-0-0-16", "prato-pod-10-55-0-0-16", "prato-pod-10-57-0-0-24", "prato-pod-11-0-0-0-8"}
			if found := networksIn(t, namespace); !slices.Equal(want, found) {
				return fmt.Errorf("there are %q", found)
			}
			return nil
		})
	})
	t.Run("a name that leaves no room", func(t *testing.T) {
		name := strings.Repeat("a", 253)
		siena := configure(t, tenant(t, "siena-2"), "siena-2", "10.95.0.0/16")
		rome.Delete(t, siena)
		long := &networking.Configuration{
			ObjectMeta: metav1.ObjectMeta{Namespace: siena.Namespace, Name: name, Labels: siena.Labels},
			Spec:       siena.Spec,
		}
		rome.Create(t, long)
		_, message := await(t, long, "RangeRefused")
		assert.Contains(t, message, "choose a shorter name")
	})
	t.Run("ranges that are not ours", func(t *testing.T) {
		pisa, _ := await(t, configure(t, tenant(t, "pisa"), "pisa", "10.91.0.0/16", "10.52.0.0/16"), "NetworkCIDRsConfigured")
		rome.Patch(t, pisa.DeepCopy(), `{"spec":{"local":{"cidr":{"pod":["10.96.0.0/12"]}}}}`)
		found, message := await(t, pisa, "RangeRefused")
		assert.Contains(t, message, "10.96.0.0/12")
		assert.Equal(t, pisa.Status.Remote, found.Status.Remote)
	})
}

// TestADeposedLeaderOverwritesNothing checks that a controller manager that reads an outdated Configuration does not
// overwrite ranges that its successor has published.
func TestADeposedLeaderOverwritesNothing(t *testing.T) {
	m := start(t)
	before, _ := await(t, configure(t, tenant(t, "massa"), "massa", "10.98.0.0/16", "10.59.0.0/16"), "NetworkCIDRsConfigured")
	m.Stop(t)
	rome.PatchStatus(t, before.DeepCopy(), `{"status":{"remote":{"cidr":{"pod":["10.159.0.0/16"]}}}}`)
	outdated := before.DeepCopy()
	outdated.Status.Remote = nil
	behind := controllertest.Behind(rome.Client, outdated)
	c := network.NewController(behind, rome.Client, events.NewFakeRecorder(10), network.Options{})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(before)})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	rome.Get(t, before, before.Namespace, before.Name)
	assert.Equal(t, []networking.CIDR{"10.159.0.0/16"}, before.Status.Remote.CIDR.Pod)
}

// TestNetworksOfAFormerConfigurationAreDeleted checks that the ranges of a deleted Configuration are free immediately,
// and that a new Configuration with the same name gets its own Networks. The cluster has no garbage collector.
func TestNetworksOfAFormerConfigurationAreDeleted(t *testing.T) {
	m := start(t)
	namespace := tenant(t, "parma")
	former, _ := await(t, configure(t, namespace, "parma", "10.96.0.0/16", "10.57.0.0/16", "10.58.0.0/24"), "NetworkCIDRsConfigured")
	rome.Delete(t, former)
	next, _ := await(t, configure(t, namespace, "parma", "10.96.0.0/16", "10.57.0.0/16"), "NetworkCIDRsConfigured")
	require.NotEqual(t, former.UID, next.UID)
	// The ranges of a Configuration are granted in any order, so two ranges that cannot be granted as requested may be
	// swapped.
	ranges := func(c *networking.Configuration) []networking.CIDR {
		return slices.Concat(c.Status.Remote.CIDR.Pod[:1], c.Status.Remote.CIDR.External)
	}
	assert.ElementsMatch(t, ranges(former), ranges(next), "nobody has taken a range in between")
	networks := networksIn(t, namespace)
	assert.Len(t, networks, 2)

	// A controller manager whose cache does not contain the present Configuration must not delete its Networks.
	m.Stop(t)
	behind := controllertest.Behind(rome.Client, former)
	c := network.NewController(behind, rome.Client, events.NewFakeRecorder(10), network.Options{})
	_, _ = c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(former)})
	assert.Equal(t, networks, networksIn(t, namespace))

	// The Configuration is deleted while no controller runs.
	rome.Delete(t, next)
	rome.StartManager(t, enable)
	controllertest.Eventually(t, "the Networks of the deleted Configuration to be deleted", func() error {
		if left := networksIn(t, namespace); len(left) > 0 {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
}

// networksIn returns the sorted names of the Networks in a namespace that are not being deleted.
func networksIn(t *testing.T, namespace string) (names []string) {
	t.Helper()
	all := &ipam.NetworkList{}
	require.NoError(t, rome.Client.List(t.Context(), all, client.InNamespace(namespace)))
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// TestAdoptedFromLiqo checks that objects that Liqo has created and granted keep their names and ranges, and can be
// deleted without Liqo.
func TestAdoptedFromLiqo(t *testing.T) {
	namespace := tenant(t, "siena")
	created := configure(t, namespace, "siena", "10.92.0.0/16", "10.244.0.0/16")
	owner := metav1.NewControllerRef(created, networking.GroupVersion.WithKind(networking.ConfigurationKind))
	for use, ranges := range map[string][2]string{
		"pod": {"10.244.0.0/16", "10.200.0.0/16"}, "external": {"10.92.0.0/16", "10.201.0.0/16"},
	} {
		n := networkOf("siena-"+use, ranges[0], map[string]string{wire.RemoteClusterIDLabel: "siena", wire.CIDRTypeLabel: use})
		n.Namespace, n.OwnerReferences = namespace, []metav1.OwnerReference{*owner}
		n.Finalizers = []string{"network.ipam.liqo.io/finalizer"}
		rome.Create(t, n)
		rome.PatchStatus(t, n, fmt.Sprintf(`{"status":{"cidr":%q}}`, ranges[1]))
	}
	start(t)
	siena, _ := await(t, created, "NetworkCIDRsConfigured")
	want := networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.200.0.0/16"}, External: []networking.CIDR{"10.201.0.0/16"}}
	assert.Equal(t, want, siena.Status.Remote.CIDR)
	for _, name := range []string{"siena-pod", "siena-external"} {
		n := &ipam.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		rome.Delete(t, n)
	}
	controllertest.Eventually(t, "other Networks in the place of those of Liqo", func() error {
		networks := &ipam.NetworkList{}
		if err := rome.Client.List(t.Context(), networks, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range networks.Items {
			if strings.Count(networks.Items[i].Name, "-") < 2 {
				return fmt.Errorf("%s is there", networks.Items[i].Name)
			}
		}
		if len(networks.Items) != 2 {
			return fmt.Errorf("there are %d", len(networks.Items))
		}
		return nil
	})
}
