// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
)

// definition returns a CustomResourceDefinition.
func definition(t *testing.T, group, plural, kind, scope string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: %[4]s
  names: {kind: %[3]s, plural: %[2]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`, group, plural, kind, scope), &object.Object))
	return object
}

// role creates a ClusterRole that allows creating resources of a group.
func role(t *testing.T, name, group string, resources ...string) rbacv1.RoleRef {
	t.Helper()
	granted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "create", "patch"}}}}
	provider.Create(t, granted)
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// mayReadRoles grants the controller manager the permissions that it needs to limit the number of objects of kinds that
// are not in the chart's role.
func mayReadRoles(t *testing.T) {
	t.Helper()
	require.NoError(t, provider.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.GrantedKinds()...))
}

// TestKindsThatAreGrantedInAdditionAreCounted checks that the number of objects is limited for kinds that a provider
// grants beyond the chart's role. The grant may apply to one namespace or to all, and may be for the consumer's group
// or its ServiceAccount. Objects can be created up to the limit.
func TestKindsThatAreGrantedInAdditionAreCounted(t *testing.T) {
	const group, remote = "granted.example.org", "granted-quito"
	for plural, kind := range map[string]string{"widgets": "Widget", "gadgets": "Gadget", "tools": "Tool", "others": "Other"} {
		provider.Create(t, definition(t, group, plural, kind, "Namespaced"))
	}
	provider.Create(t, definition(t, group, "machines", "Machine", "Cluster"))
	mayReadRoles(t)
	provider.StartManager(t, func(o *controllers.Options) {
		o.ObjectCounts, o.DefaultObjectCount = counts(map[string]string{"count/configmaps": "5", "count/tools." + group: "7"}), 2
		o.RecountDelay, o.RegrantDelay = 3*time.Second, 2*time.Second
	})
	home := tenant(t, "quito")
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: home + "-everywhere"}, RoleRef: role(t, home+"-everywhere", group, "gadgets", "machines", "unknowns", "gadgets/status"),
		Subjects: []rbacv1.Subject{rbac.ServiceAccount(home, wire.ConsumerServiceAccount)},
	}
	provider.Create(t, everywhere)
	nm := replicated(home, "quito", map[string]string{"granted": remote})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"granted": offloading.MappingAccepted})
	awaitCounts(t, remote, map[string]string{"count/configmaps": "5", "count/tools." + group: "7", "count/gadgets." + group: "2"})

	// The next check must detect a permission that is added later.
	for name, subject := range map[string]rbacv1.Subject{"consumer": rbac.Group("quito"), "another": rbac.Group("turin")} {
		resource := map[string]string{"consumer": "widgets", "another": "others"}[name]
		provider.Create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: name}, Subjects: []rbacv1.Subject{subject}, RoleRef: role(t, home+"-"+name, group, resource, "tools")})
	}
	awaitCounts(t, remote, map[string]string{"count/configmaps": "5", "count/tools." + group: "7", "count/gadgets." + group: "2", "count/widgets." + group: "2"})

	config, err := provider.ConfigFor("quito-kubelet", "quito")
	require.NoError(t, err)
	consumer, err := client.New(config, client.Options{})
	require.NoError(t, err)
	create := func(name string) error {
		widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Widget"}}
		widget.SetNamespace(remote)
		widget.SetName(name)
		return consumer.Create(t.Context(), widget)
	}
	for _, name := range []string{"first", "second"} {
		controllertest.Eventually(t, "a Widget to be allowed", func() error { return client.IgnoreAlreadyExists(create(name)) })
	}
	controllertest.Eventually(t, "a third one to be refused", func() error {
		if err := create("third"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: "+wire.ObjectCountsQuota) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})

	// A wildcard is reported, because its objects cannot be counted. The other kinds remain limited.
	provider.Create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "all"}, Subjects: []rbacv1.Subject{rbac.Group("quito")}, RoleRef: role(t, home+"-all", "wild.example.org", "*")})
	event := provider.AwaitEvent(t, home, offloading.NamespaceMapKind, nm.Name, "UncountedKinds")
	require.Contains(t, event.Note, "*.wild.example.org in namespace "+remote)
	awaitCounts(t, remote, map[string]string{"count/configmaps": "5", "count/tools." + group: "7", "count/gadgets." + group: "2", "count/widgets." + group: "2"})
}
