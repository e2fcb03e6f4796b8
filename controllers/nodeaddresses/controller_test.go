// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeaddresses_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var rome = controllertest.Cluster{
	ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds", "../../api/crds/network"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &rome)) }

func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, rome.Grant(t.Context(), append(manager.Gateways(), manager.Addresses()...)...))
	return rome.StartManager(t, func(o *controllers.Options) {
		o.Gateways.Enabled, o.Addresses.Enabled, o.Installation = true, true, metav1.NamespaceDefault
	})
}

// createNode creates a node with an address. An empty address means none.
func createNode(t *testing.T, name, address string, labels map[string]string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	rome.Create(t, node)
	if address != "" {
		setAddress(t, node, address)
	}
	return node
}

func setAddress(t *testing.T, node *corev1.Node, address string) {
	t.Helper()
	const text = `{"status":{"addresses":[{"type":"Hostname","address":"n"},{"type":"InternalIP","address":"fd00::1"},{"type":"InternalIP","address":%q}]}}`
	rome.PatchStatus(t, node, fmt.Sprintf(text, address))
}

// awaitIP waits until a node has an IP for the address, and returns it.
func awaitIP(t *testing.T, node *corev1.Node, address string) *ipam.IP {
	t.Helper()
	ip := &ipam.IP{}
	controllertest.Eventually(t, "the IP of node "+node.Name, func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "node-" + node.Name}, ip); err != nil {
			return err
		}
		if string(ip.Spec.IP) != address || ip.OwnerReferences[0].UID != node.UID {
			return fmt.Errorf("it is for %s", ip.Spec.IP)
		}
		return nil
	})
	return ip
}

// TestNodes checks that each real node has an IP, which follows its address, gets a grant, and is deleted with the node.
func TestNodes(t *testing.T) {
	rome.Create(t, &ipam.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "external-cidr", Labels: map[string]string{wire.NetworkTypeLabel: wire.ExternalNetwork}},
		Spec:       ipam.NetworkSpec{CIDR: networking.CIDR("10.70.0.0/16")},
	})
	m := start(t)
	first, second := createNode(t, "first", "10.9.0.1", nil), createNode(t, "second", "", nil)
	createNode(t, "virtual", "10.9.0.9", map[string]string{wire.TypeLabel: wire.VirtualNodeType})
	ip := awaitIP(t, first, "10.9.0.1")
	assert.Equal(t, "true", ip.Labels[wire.NodeIPLabel])
	controllertest.Eventually(t, "a grant", func() error {
		rome.Get(t, ip, metav1.NamespaceDefault, ip.Name)
		if ip.Status.IP == "" {
			return fmt.Errorf("the status is %+v", ip.Status)
		}
		return nil
	})
	setAddress(t, second, "10.9.0.2")
	awaitIP(t, second, "10.9.0.2")
	setAddress(t, first, "10.9.0.3")
	awaitIP(t, first, "10.9.0.3")
	rome.Delete(t, second)
	rome.AwaitGone(t, &ipam.IP{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "node-second"}})
	list := &ipam.IPList{}
	require.NoError(t, rome.Client.List(t.Context(), list))
	assert.Len(t, list.Items, 1, "virtual nodes have no address")

	// A new process writes nothing. An IP that another client has created is not changed.
	m.Stop(t)
	chosen := &ipam.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "node-third", Labels: map[string]string{wire.NodeIPLabel: "true"}},
		Spec:       ipam.IPSpec{IP: "10.9.0.44"},
	}
	rome.Create(t, chosen)
	createNode(t, "third", "10.9.0.4", nil)
	m = start(t)
	fourth := createNode(t, "fourth", "10.9.0.5", nil)
	awaitIP(t, fourth, "10.9.0.5")
	assert.Empty(t, m.Writes.About("DELETE", "/ips/"))
	assert.Len(t, m.Writes.About("POST", "/ips"), 1, "only the IP of the new node")
	rome.Get(t, chosen, metav1.NamespaceDefault, "node-third")
	assert.Equal(t, networking.IP("10.9.0.44"), chosen.Spec.IP)
}
