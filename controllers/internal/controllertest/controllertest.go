// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllertest runs the controllers against real control planes, with the roles and all admission policies of
// the chart. A test fails if a policy denies a request of a controller.
//
// The TestMain of a package starts its clusters once. Each test has its own namespace and manager:
//
//	func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }
//
//	func TestSomething(t *testing.T) {
//		namespace := provider.Namespace(t)
//		provider.StartManager(t)
//		provider.Create(t, …)
//		controllertest.Eventually(t, "the pod to exist", func() error { … })
//	}
package controllertest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/policies"
)

// patience limits the wait for a condition. A longer limit only delays failures. Less than 30 s would be too short
// for the garbage collector, which discovers new kinds every 30 s.
const patience = 3 * time.Minute

// ManagerUser is the user of the controllers. The chart's policies apply to this user.
var ManagerUser = policies.ManagerUser(metav1.NamespaceDefault)

// Cluster is a control plane that the tests of a package share.
type Cluster struct {
	// Options configures the control plane. It must be set before Main.
	Options testenv.Options
	// ID is the cluster's ID.
	ID string

	*testenv.Cluster
	// Client is an uncached client with an administrator's permissions.
	Client client.Client
}

// Main starts the clusters, runs the tests, stops the clusters, and returns the exit code. If
// testenv.LeavesOutClusters, it does not start the clusters, and skips the tests that use them.
func Main(m *testing.M, clusters ...*Cluster) int {
	if testenv.LeavesOutClusters() {
		return testenv.RunWithoutClusters(m)
	}
	if err := start(clusters); err != nil {
		fmt.Fprintln(os.Stderr, "starting control planes:", err)
		return 1
	}
	code := m.Run()
	for _, c := range clusters {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping control plane:", err)
			code = 1
		}
	}
	return code
}

func start(clusters []*Cluster) error {
	options := make([]testenv.Options, len(clusters))
	for i, c := range clusters {
		options[i] = c.Options
		options[i].Name = c.ID
	}
	started, err := testenv.StartAll(context.Background(), options...)
	if err != nil {
		return err
	}
	scheme, err := controllers.Scheme()
	if err != nil {
		return err
	}
	for i, c := range clusters {
		c.Cluster = started[i]
		if c.Client, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
			return err
		}
		manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(ManagerUser)}
		if err := c.Grant(context.Background(), append(manager.Objects(), manager.VirtualNodes()...)...); err != nil {
			return err
		}
		if err := policies.Install(context.Background(), c.Config(), policies.Options{Namespace: metav1.NamespaceDefault, ClusterID: c.ID, ExemptAdministrators: true}); err != nil {
			return err
		}
	}
	return nil
}

// Grant creates roles and their bindings.
func (c *Cluster) Grant(ctx context.Context, objects ...rbac.Object) error {
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	return rbac.Install(ctx, clients, objects...)
}

// Namespace creates a namespace for one test. Pods can be created in it.
func (c *Cluster) Namespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	c.Create(t, namespace)
	Eventually(t, "the default service account", func() error {
		return c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return namespace.Name
}

// Extended creates a namespace like Namespace, and marks it as a remote namespace of the consumer.
func (c *Cluster) Extended(t *testing.T, consumer string) string {
	t.Helper()
	name := c.Namespace(t)
	c.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:"liqo-tenant-%s/%s"}}}`,
		wire.RemoteClusterIDLabel, consumer, wire.ManagedByNamespaceMapAnnotation, consumer, c.ID))
	return name
}

// Create creates an object, or ends the test.
func (c *Cluster) Create(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoErrorf(t, c.Client.Create(t.Context(), obj), "creating %T %s", obj, client.ObjectKeyFromObject(obj))
}

// Get reads the object with this name, or ends the test.
func (c *Cluster) Get(t *testing.T, obj client.Object, namespace, name string) {
	t.Helper()
	require.NoErrorf(t, c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, obj), "getting %T %s/%s", obj, namespace, name)
}

// Patch applies a JSON merge patch to an object, or ends the test.
func (c *Cluster) Patch(t *testing.T, obj client.Object, patch string) {
	t.Helper()
	require.NoErrorf(t, c.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))), "patching %T %s", obj, client.ObjectKeyFromObject(obj))
}

// PatchStatus applies a JSON merge patch to the status of an object, or ends the test.
func (c *Cluster) PatchStatus(t *testing.T, obj client.Object, patch string) {
	t.Helper()
	require.NoErrorf(t, c.Client.Status().Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))), "patching the status of %T %s", obj, client.ObjectKeyFromObject(obj))
}

// Delete deletes an object without a grace period, or ends the test.
func (c *Cluster) Delete(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoErrorf(t, c.Client.Delete(t.Context(), obj, client.GracePeriodSeconds(0)), "deleting %T %s", obj, client.ObjectKeyFromObject(obj))
}

// AwaitGone waits until the object no longer exists.
func (c *Cluster) AwaitGone(t *testing.T, obj client.Object) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%T %s to be gone", obj, obj.GetName()), func() error {
		err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		switch {
		case err == nil:
			return fmt.Errorf("it is there, finalizers are %q", obj.GetFinalizers())
		case apierrors.IsNotFound(err):
			return nil
		}
		return err
	})
}

// Events returns the Events about the object with this kind and name.
func (c *Cluster) Events(t *testing.T, namespace, kind, name string) []eventsv1.Event {
	t.Helper()
	list := &eventsv1.EventList{}
	require.NoErrorf(t, c.Client.List(t.Context(), list, client.InNamespace(namespace)), "listing events in %s", namespace)
	var events []eventsv1.Event
	for i := range list.Items {
		if list.Items[i].Regarding.Kind == kind && list.Items[i].Regarding.Name == name {
			events = append(events, list.Items[i])
		}
	}
	return events
}

// AwaitEvent waits for an Event with this reason, and returns it.
func (c *Cluster) AwaitEvent(t *testing.T, namespace, kind, name, reason string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	Eventually(t, fmt.Sprintf("an Event %s about %s %s", reason, kind, name), func() error {
		events := c.Events(t, namespace, kind, name)
		for i := range events {
			if events[i].Reason == reason {
				found = events[i]
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(events))
	})
	return found
}

// Eventually waits until holds returns nil. After a timeout, the test fails with the last error of holds.
func Eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("waiting for %s: %v", what, t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
