// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
)

// peeringUser returns a client with the permissions of the user with which a consumer's administrator joins.
func (c *consumer) peeringUser() client.Client {
	c.Helper()
	name := "peering-user-" + c.id
	provider.Create(c.T, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Rules: rbac.PeeringUserTenant().PolicyRules(strings.NewReplacer())})
	provider.Create(c.T, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Subjects: []rbacv1.Subject{rbac.User(name)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
	provider.AwaitAccess(c.T, authorizationv1.SubjectAccessReviewSpec{User: name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: "delete", Group: auth.GroupVersion.Group, Resource: "tenants"}}, true)
	config := rest.CopyConfig(provider.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	scheme, err := controllers.Scheme()
	require.NoError(c, err)
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(c, err)
	return user
}

// end deletes a Tenant, as liqoctl unpeer does, as soon as the policy admits the deletion.
func (c *consumer) end(user client.Client, tenant *auth.Tenant) {
	c.Helper()
	controllertest.Eventually(c.T, "Tenant "+tenant.Name+" to be deleted", func() error {
		return client.IgnoreNotFound(user.Delete(c.Context(), tenant.DeepCopy()))
	})
	provider.AwaitGone(c.T, tenant)
}

func (c *consumer) awaitCondition(name string, want auth.TenantCondition) *auth.Tenant {
	c.Helper()
	tenant := &auth.Tenant{}
	controllertest.Eventually(c.T, fmt.Sprintf("Tenant %s to be %s", name, want), func() error {
		if err := provider.Client.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, tenant); err != nil {
			return err
		}
		if tenant.Spec.TenantCondition != want {
			return fmt.Errorf("it is %s", tenant.Spec.TenantCondition)
		}
		return nil
	})
	return tenant
}

// TestTheConditionOutlivesTheTenant checks that the condition of a consumer's Tenant is kept if the consumer ends the
// peering and starts another one.
func TestTheConditionOutlivesTheTenant(t *testing.T) {
	start(t)
	t.Run("cordoned", func(t *testing.T) {
		enna := newConsumer(t, "enna")
		user, tenant := enna.peeringUser(), enna.join()
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Cordoned"}}`)
		enna.end(user, tenant)
		require.NoError(t, user.Create(t.Context(), enna.tenant(enna.readNonce())), "liqoctl peer")
		next := enna.admitted(enna.awaitCondition("enna", auth.TenantCordoned))
		assert.Contains(t, provider.AwaitEvent(t, enna.namespace, auth.TenantKind, "enna", "TenantConditionRestored").Note, "refractctl activate tenant enna")
		slice := enna.slice("more", cpu("1"))
		require.NoError(t, enna.with(next.Status.AuthParams).Create(t.Context(), slice))
		enna.decided(slice, auth.ResourcesCondition, auth.ResourceSliceDenied)
		// The next Tenant gets the condition again, no matter how often the consumer ends the peering.
		enna.end(user, next)
		require.NoError(t, user.Create(t.Context(), enna.tenant(enna.readNonce())))
		next = enna.awaitCondition("enna", auth.TenantCordoned)
		enna.awaitRecord("Cordoned/" + string(next.UID))

		provider.Patch(t, next, `{"spec":{"tenantCondition":"Active"}}`)
		enna.awaitRecord("")
		enna.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
		enna.end(user, next)
		require.NoError(t, user.Create(t.Context(), enna.tenant(enna.readNonce())))
		assert.Equal(t, auth.TenantActive, enna.admitted(next).Spec.TenantCondition)
	})
	t.Run("drained", func(t *testing.T) {
		noto := newConsumer(t, "noto")
		user, tenant := noto.peeringUser(), noto.join()
		second := noto.tenant(noto.readNonce())
		second.Name = "second"
		require.NoError(t, user.Create(t.Context(), second), "a Tenant that waits for the end of the other")
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Drained"}}`)
		noto.end(user, tenant)
		next := noto.awaitCondition("second", auth.TenantDrained)
		noto.awaitRecord("Drained/" + string(next.UID))
		provider.AwaitGone(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: noto.namespace, Name: "liqo-remote-tenant"}})
		provider.Get(t, next, next.Namespace, next.Name)
		assert.Nil(t, next.Status.AuthParams)
	})
}

// readNonce returns the nonce that the consumer requested earlier.
func (c *consumer) readNonce() []byte {
	c.Helper()
	secret := &corev1.Secret{}
	provider.Get(c.T, secret, c.namespace, wire.NonceSecret)
	return secret.Data[wire.NonceKey]
}

func (c *consumer) awaitRecord(want string) {
	c.Helper()
	controllertest.Eventually(c.T, fmt.Sprintf("the record %q", want), func() error {
		namespace := &corev1.Namespace{}
		provider.Get(c.T, namespace, "", c.namespace)
		if is := namespace.Annotations[wire.TenantConditionAnnotation]; is != want {
			return errors.New("it is " + is)
		}
		return nil
	})
}
