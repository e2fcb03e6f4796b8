// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var rome = controllertest.Cluster{
	ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds", "../../api/crds/network"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &rome)) }

// reservedRange contains no address of an object of the cluster.
const reservedRange = "10.210.0.0/16"

func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, rome.Grant(t.Context(), manager.Addresses()...))
	return rome.StartManager(t, func(o *controllers.Options) {
		o.Addresses.Enabled = true
		o.Addresses.Reserved = ipmap.Ranges{netip.MustParsePrefix(reservedRange)}
	})
}

func network(namespace, name, cidr string, labels map[string]string) *ipam.Network {
	return &ipam.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       ipam.NetworkSpec{CIDR: networking.CIDR(cidr)},
	}
}

func reference(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Namespace: namespace, Name: name}
}

func awaitRange(t *testing.T, n *ipam.Network) string {
	t.Helper()
	controllertest.Eventually(t, "the range of Network "+n.Name, func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		if n.Status.CIDR == "" {
			return fmt.Errorf("it is refused: %v", n.Status.Conditions)
		}
		return nil
	})
	return string(n.Status.CIDR)
}

// TestAddressesAreGrantedOnce creates many IPs while two controller managers grant addresses at the same time. Each IP
// must get an address, and no two IPs may have the same address.
func TestAddressesAreGrantedOnce(t *testing.T) {
	namespace := rome.Namespace(t)
	external := network(namespace, "external-cidr", "10.70.0.0/24", map[string]string{wire.NetworkTypeLabel: wire.ExternalNetwork})
	external.Spec.PreAllocated = 1
	rome.Create(t, external)
	start(t)
	assert.Equal(t, "10.70.0.0/24", awaitRange(t, external))
	const number = 40
	for i := range number {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("ip-%d", i)}
		rome.Create(t, &ipam.IP{ObjectMeta: meta, Spec: ipam.IPSpec{IP: "192.0.2.1"}})
		if i == number/4 {
			start(t) // there is no leader election in this test
		}
	}
	seen := map[networking.IP]string{}
	controllertest.Eventually(t, "the addresses of all IPs", func() error {
		clear(seen)
		ips := &ipam.IPList{}
		if err := rome.Client.List(t.Context(), ips, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range ips.Items {
			ip := &ips.Items[i]
			if ip.Status.IP == "" {
				return fmt.Errorf("%s has none: %v", ip.Name, ip.Status.Conditions)
			}
			if other := seen[ip.Status.IP]; other != "" {
				return fmt.Errorf("%s and %s have %s", other, ip.Name, ip.Status.IP)
			}
			seen[ip.Status.IP] = ip.Name
		}
		if len(seen) != number {
			return fmt.Errorf("there are %d", len(seen))
		}
		return nil
	})
	assert.NotContains(t, seen, networking.IP("10.70.0.0"), "the first address is reserved")
}

// TestRefusedWish checks that a request that cannot be granted has a condition and an Event with the holder of the
// range. It must be granted when the reason no longer applies.
func TestRefusedWish(t *testing.T) {
	namespace := rome.Namespace(t)
	start(t)
	first := network(namespace, "first", "10.20.0.0/16", nil)
	rome.Create(t, first)
	assert.Equal(t, "10.20.0.0/16", awaitRange(t, first))
	second := network(namespace, "second", "10.20.0.0/20", map[string]string{wire.NetworkNotRemappedLabel: "true"})
	rome.Create(t, second)
	event := rome.AwaitEvent(t, namespace, "Network", "second", "RangeTaken")
	assert.Contains(t, event.Note, "Network "+namespace+"/first")
	controllertest.Eventually(t, "the condition of the second Network", func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(second.Status.Conditions, ipam.GrantedCondition)
		if condition == nil || condition.Reason != "RangeTaken" {
			return fmt.Errorf("it is %v", condition)
		}
		return nil
	})
	assert.Empty(t, second.Status.CIDR)
	rome.Delete(t, first)
	assert.Equal(t, "10.20.0.0/20", awaitRange(t, second))
	assert.Empty(t, second.Status.Conditions)
}

// TestIPWithoutANetwork checks that the condition of an IP reports that its Network is missing. The IP can be deleted
// even though Liqo's IPAM is not running.
func TestIPWithoutANetwork(t *testing.T) {
	namespace := rome.Namespace(t)
	start(t)
	nowhere := &ipam.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nowhere", Finalizers: []string{"ip.ipam.liqo.io/finalizer"}},
		Spec:       ipam.IPSpec{IP: "192.0.2.1", NetworkRef: reference(namespace, "absent")},
	}
	rome.Create(t, nowhere)
	rome.AwaitEvent(t, namespace, "IP", "nowhere", "NetworkMissing")
	rome.Delete(t, nowhere)
	rome.AwaitGone(t, nowhere)
}

// TestWishInOurRanges checks that addresses of this cluster's Services are not granted.
func TestWishInOurRanges(t *testing.T) {
	namespace := rome.Namespace(t)
	start(t)
	kubernetes := &corev1.Service{}
	rome.Get(t, kubernetes, metav1.NamespaceDefault, "kubernetes")
	wish := kubernetes.Spec.ClusterIP + "/32"
	peer := network(namespace, "peer", wish, nil)
	rome.Create(t, peer)
	assert.NotEqual(t, wish, awaitRange(t, peer))
}

// TestWishInReservedRange checks that a peer gets another range if it asks for a reserved one, or for a range around it.
func TestWishInReservedRange(t *testing.T) {
	namespace := rome.Namespace(t)
	start(t)
	for name, wish := range map[string]string{"inside": "10.210.4.0/24", "around": "10.210.0.0/15"} {
		peer := network(namespace, name, wish, nil)
		rome.Create(t, peer)
		got := netip.MustParsePrefix(awaitRange(t, peer))
		assert.False(t, got.Overlaps(netip.MustParsePrefix(reservedRange)), "it got %s", got)
	}
}
