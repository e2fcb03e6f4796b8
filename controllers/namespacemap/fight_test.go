// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/tenancy"
)

// TestAccessAndLimitsThatAreAlwaysChangedAreRestoredSlowly checks the case in which a client of this cluster reverts
// the metadata of a remote namespace, or the consumer's RoleBinding, whenever they are restored. They are still
// restored every few seconds. An Event names the fields and, unless the client only removes fields, the client.
func TestAccessAndLimitsThatAreAlwaysChangedAreRestoredSlowly(t *testing.T) {
	const limit = "tenants.refract.io/scheduler-names"
	for name, tc := range map[string]struct {
		object     func(namespace, home string) client.Object
		change     string
		isRestored func(client.Object) bool
		notes      string
	}{
		"limit": {
			object: func(namespace, _ string) client.Object {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			},
			change:     fmt.Sprintf(`{"metadata":{"annotations":{%q:"*"}}}`, limit),
			isRestored: func(o client.Object) bool { return o.GetAnnotations()[limit] == "mine" },
			notes:      `"rival" (Update)|differing: metadata.annotations.` + limit,
		},
		"level": {
			object: func(namespace, _ string) client.Object {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			},
			change:     fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, tenancy.EnforceLabel),
			isRestored: func(o client.Object) bool { return o.GetLabels()[tenancy.EnforceLabel] != "" },
			notes:      "another client removes fields|differing: metadata.labels." + tenancy.EnforceLabel,
		},
		"RoleBinding": {
			object: func(namespace, home string) client.Object {
				return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: home}}
			},
			change:     `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"rival"}]}`,
			isRestored: func(o client.Object) bool { return len(o.(*rbacv1.RoleBinding).Subjects) == 3 },
			notes:      `"rival" (Update)|differing: subjects`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := tenant(t, "rome")
			provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, fmt.Sprintf(`{"metadata":{"annotations":{%q:"mine"}}}`, limit))
			m := provider.StartManager(t)
			nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
			provider.Create(t, nm)
			awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
			object := tc.object(home+"-shop", home)
			kind, eventsIn := "Namespace", metav1.NamespaceDefault
			if object.GetNamespace() != "" {
				kind, eventsIn = "RoleBinding", object.GetNamespace()
			}
			change := func() {
				err := provider.Client.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(tc.change)), client.FieldOwner("rival"))
				if !apierrors.IsConflict(err) {
					require.NoError(t, err)
				}
			}
			told := func() bool {
				for _, event := range provider.Events(t, eventsIn, kind, object.GetName()) {
					missing := false
					for _, note := range strings.Split(tc.notes, "|") {
						missing = missing || !strings.Contains(event.Note, note)
					}
					if event.Reason == wire.ReflectionQuarantinedReason && !missing {
						return true
					}
				}
				return false
			}
			restored := func() int { return len(m.Writes.About("PATCH", object.GetName())) }
			for start := time.Now(); !told(); time.Sleep(100 * time.Millisecond) {
				change()
				if time.Since(start) > time.Minute {
					t.Fatalf("there is no Event after %d writes, but %v", restored(), provider.Events(t, eventsIn, kind, object.GetName()))
				}
			}
			before := restored()
			for range 60 {
				change()
				time.Sleep(100 * time.Millisecond)
			}
			if writes := restored() - before; writes > 5 {
				t.Errorf("it was restored %d times within six seconds", writes)
			}
			controllertest.Eventually(t, "the restoration", func() error {
				provider.Get(t, object, object.GetNamespace(), object.GetName())
				if !tc.isRestored(object) {
					return fmt.Errorf("it is %v", object)
				}
				return nil
			})
		})
	}
}
