// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// TestWhatAdministratorsAddStays checks that labels, annotations and subjects that an administrator of the provider
// adds are kept. The consumer keeps its permissions, and additional permissions that an earlier version has granted are
// revoked.
func TestWhatAdministratorsAddStays(t *testing.T) {
	first := provider.StartManager(t)
	nm := replicated(tenant(t, "turin"), "turin", map[string]string{"shop": "shop-turin"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	namespace, binding := remoteNamespace(t, "shop-turin"), &rbacv1.RoleBinding{}
	provider.Get(t, binding, "shop-turin", nm.Namespace)
	first.Stop(t)

	ours := slices.Clone(binding.Subjects)
	former := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "former"}
	auditor := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "auditor"}
	record := asked.Read(binding.Annotations)
	if record == nil {
		t.Fatalf("annotations = %v, want a record", binding.Annotations)
	}
	record.Content.Set("", "subjects", former.APIGroup, former.Kind, former.Namespace, former.Name)
	binding.Annotations[asked.Annotation] = record.Text()
	binding.Subjects = []rbacv1.Subject{auditor, former, ours[0]}
	if err := provider.Client.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	provider.Patch(t, namespace, `{"metadata":{"labels":{"team":"platform"},"annotations":{"note":"theirs"}}}`)

	second := provider.StartManager(t)
	controllertest.Eventually(t, "the subjects", func() error {
		provider.Get(t, binding, "shop-turin", nm.Namespace)
		if want := []rbacv1.Subject{auditor, ours[0], ours[1]}; !slices.Equal(binding.Subjects, want) {
			return fmt.Errorf("they are %v", binding.Subjects)
		}
		return nil
	})
	if namespace = remoteNamespace(t, "shop-turin"); namespace.Labels["team"] != "platform" || namespace.Annotations["note"] != "theirs" {
		t.Errorf("namespace = %v", namespace.ObjectMeta)
	}
	second.Stop(t)
	third := provider.StartManager(t)
	other := replicated(tenant(t, "ancona"), "ancona", map[string]string{"shop": "shop-ancona"})
	provider.Create(t, other)
	awaitPhases(t, other, phases{"shop": "Accepted"})
	if writes := third.Writes.About(namespace.Name); len(writes) > 0 {
		t.Errorf("writes after a restart = %q, want none", writes)
	}
	if namespace.Labels[wire.RemoteClusterIDLabel] != "turin" {
		t.Errorf("labels = %v", namespace.Labels)
	}
}
