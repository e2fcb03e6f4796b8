// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podaddresses_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// createPod creates a pod with an address. If offloaded is true, it has the label of offloaded pods.
func createPod(t *testing.T, namespace, name, address string, offloaded bool) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	if offloaded {
		pod.Labels[wire.OffloadedPodLabel] = "true"
	}
	rome.Create(t, pod)
	setStatus(t, pod, address, corev1.PodRunning)
	return pod
}

func setStatus(t *testing.T, pod *corev1.Pod, address string, phase corev1.PodPhase) {
	t.Helper()
	addresses := "[]"
	if address != "" {
		addresses = fmt.Sprintf(`[{"ip":%q}]`, address)
	}
	rome.PatchStatus(t, pod, fmt.Sprintf(`{"status":{"phase":%q,"podIP":%q,"podIPs":%s}}`, phase, address, addresses))
}

// awaitIP waits until a pod has an IP for the address.
func awaitIP(t *testing.T, pod *corev1.Pod, address string) *ipam.IP {
	t.Helper()
	ip := &ipam.IP{}
	controllertest.Eventually(t, "the IP of pod "+pod.Name, func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), ip); err != nil {
			return err
		}
		if string(ip.Spec.IP) != address || ip.OwnerReferences[0].UID != pod.UID {
			return fmt.Errorf("it is for %s, %+v", ip.Spec.IP, ip.OwnerReferences)
		}
		return nil
	})
	return ip
}

func requireNoIP(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), &ipam.IP{})
	require.True(t, apierrors.IsNotFound(err), "pod %s has an IP: %v", pod.Name, err)
}

// TestPods checks that each offloaded pod has an IP, which gets a grant, follows the address of the pod, and is deleted
// with it, and that other IPs with the name of a pod stay.
func TestPods(t *testing.T) {
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, rome.Grant(t.Context(), append(append(manager.Gateways(), manager.Addresses()...), manager.PodAddresses()...)...))
	rome.StartManager(t, func(o *controllers.Options) {
		o.Gateways.Enabled, o.Addresses.Enabled, o.OffloadedPodIPs, o.Installation = true, true, true, metav1.NamespaceDefault
	})
	rome.Create(t, &ipam.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "external-cidr", Labels: map[string]string{wire.NetworkTypeLabel: wire.ExternalNetwork}},
		Spec:       ipam.NetworkSpec{CIDR: networking.CIDR("10.70.0.0/16")},
	})
	namespace := rome.Namespace(t)
	ofUser := &ipam.IP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "chosen"}, Spec: ipam.IPSpec{IP: "10.61.0.99"}}
	rome.Create(t, ofUser)
	here, chosen := createPod(t, namespace, "here", "10.1.0.4", false), createPod(t, namespace, "chosen", "10.61.0.5", true)
	web, job := createPod(t, namespace, "web", "10.61.0.6", true), createPod(t, namespace, "job", "10.61.0.7", true)
	ip := awaitIP(t, web, "10.61.0.6")
	assert.Equal(t, web.Name, ip.Labels[wire.PodNameLabel])
	controllertest.Eventually(t, "a grant", func() error {
		rome.Get(t, ip, namespace, web.Name)
		if ip.Status.IP == "" {
			return fmt.Errorf("the status is %+v", ip.Status)
		}
		return nil
	})
	awaitIP(t, job, "10.61.0.7")
	setStatus(t, job, "10.61.0.7", corev1.PodSucceeded)
	rome.AwaitGone(t, &ipam.IP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job.Name}})

	setStatus(t, web, "10.61.0.8", corev1.PodRunning)
	awaitIP(t, web, "10.61.0.8")
	setStatus(t, web, "", corev1.PodRunning)
	// This pod is reconciled after the change of web.
	later := createPod(t, namespace, "later", "10.61.0.9", true)
	awaitIP(t, later, "10.61.0.9")
	awaitIP(t, web, "10.61.0.8")

	requireNoIP(t, here)
	rome.Get(t, ofUser, namespace, chosen.Name)
	assert.Equal(t, networking.IP("10.61.0.99"), ofUser.Spec.IP)

	// A pod of a StatefulSet has the name of its predecessor.
	require.NoError(t, rome.Client.Delete(t.Context(), web, client.GracePeriodSeconds(0)))
	again := createPod(t, namespace, "web", "10.61.0.10", true)
	awaitIP(t, again, "10.61.0.10")
}
