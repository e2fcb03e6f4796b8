// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
)

// TestAccessThatIsAlwaysChangedIsRestoredSlowly checks the case in which a client reverts the label of an offloaded
// namespace, or the RoleBinding of its virtual kubelets, whenever they are restored. They are still restored every few
// seconds, and an Event names the client and the fields.
func TestAccessThatIsAlwaysChangedIsRestoredSlowly(t *testing.T) {
	for kind, tc := range map[string]struct {
		change, fields string
		isRestored     func(client.Object) bool
	}{
		"Namespace": {
			change: fmt.Sprintf(`{"metadata":{"labels":{%q:"no"}}}`, wire.SchedulingEnabledLabel), fields: "metadata.labels." + wire.SchedulingEnabledLabel,
			isRestored: func(o client.Object) bool { return o.GetLabels()[wire.SchedulingEnabledLabel] == "true" },
		},
		"RoleBinding": {
			change: `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"rival"}]}`, fields: "subjects",
			isRestored: func(o client.Object) bool { return o.(*rbacv1.RoleBinding).Subjects[0].Name == "node-of-rolebinding" },
		},
	} {
		t.Run(kind, func(t *testing.T) {
			tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
			// A provider keeps its tenant namespace until the test process ends, so each subtest uses its own provider.
			providerID := "of-" + strings.ToLower(kind)
			node := "node-" + providerID
			m := consumer.StartManager(t, letsIn)
			virtualNode(t, tenant, node, providerID, map[string]string{})
			offload(t, namespace, offloading.NamespaceOffloadingSpec{})
			binding := awaitLetIn(t, namespace, node)
			awaitMapped(t, tenant, providerID, namespace, namespace+"-consumer")
			var object client.Object = binding
			eventsIn, path := namespace, "/"+namespace+"/rolebindings/"
			if kind == "Namespace" {
				object = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
				eventsIn, path = metav1.NamespaceDefault, "/namespaces/"+namespace
			}
			change := func() {
				err := consumer.Client.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(tc.change)), client.FieldOwner("rival"))
				if !apierrors.IsConflict(err) {
					require.NoError(t, err)
				}
			}
			told := func() bool {
				for _, event := range consumer.Events(t, eventsIn, kind, object.GetName()) {
					if event.Reason == wire.ReflectionQuarantinedReason && strings.Contains(event.Note, `"rival" (Update)`) && strings.Contains(event.Note, "differing: "+tc.fields) {
						return true
					}
				}
				return false
			}
			restored := func() (writes int) {
				for _, write := range m.Writes.About("PATCH", path) {
					if kind == "RoleBinding" || strings.HasSuffix(write, path) {
						writes++
					}
				}
				return writes
			}
			for start := time.Now(); !told(); time.Sleep(100 * time.Millisecond) {
				change()
				if time.Since(start) > time.Minute {
					t.Fatalf("there is no Event after %d writes, but %v", restored(), consumer.Events(t, eventsIn, kind, object.GetName()))
				}
			}
			before := restored()
			for range 60 {
				change()
				time.Sleep(100 * time.Millisecond)
			}
			assert.Positive(t, before)
			assert.LessOrEqual(t, restored()-before, 5)
			controllertest.Eventually(t, "the restoration", func() error {
				consumer.Get(t, object, object.GetNamespace(), object.GetName())
				if !tc.isRestored(object) {
					return fmt.Errorf("it is %v", object)
				}
				return nil
			})
			for _, event := range consumer.Events(t, namespace, offloading.NamespaceOffloadingKind, offloading.NamespaceOffloadingName) {
				assert.NotEqual(t, "FailedAccess", event.Reason, event.Note)
			}
		})
	}
}
