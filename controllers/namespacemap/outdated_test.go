// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/namespacemap"
)

// TestAMapThatIsNotDeletedAnyMoreKeepsItsNamespaces checks that, if the deletion of a map was undone by restoring a
// backup, its remote namespaces are kept while the cache is outdated.
func TestAMapThatIsNotDeletedAnyMoreKeepsItsNamespaces(t *testing.T) {
	m := provider.StartManager(t)
	nm := replicated(tenant(t, "modena"), "modena", map[string]string{"shop": "shop-modena"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": "Accepted"})
	m.Stop(t)
	provider.Get(t, nm, nm.Namespace, nm.Name)
	c := namespacemap.NewController(controllertest.Behind(provider.Client, controllertest.Deleted(nm)), provider.Client, events.NewFakeRecorder(10), namespacemap.Options{Workers: 1})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(nm)})
	assert.ErrorContains(t, err, "is not as the cache shows it")
	assert.Nil(t, remoteNamespace(t, "shop-modena").DeletionTimestamp)
}
