// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/remotedata"
)

// A NamespaceMap that somebody deletes on the provider takes no namespace with data along that the consumer still requests. The next map uses it
// again, and its withdrawal deletes it.
func TestADeletedMapKeepsData(t *testing.T) {
	tenant := tenant(t, "siena")
	provider.StartManager(t)
	desired := map[string]string{"shop": "shop-siena", "web": "web-siena"}
	nm := replicated(tenant, "siena", desired)
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted, "web": offloading.MappingAccepted})
	provider.BoundClaim(t, "elsewhere", "shop-siena", corev1.PersistentVolumeReclaimDelete)

	provider.Delete(t, nm)
	provider.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web-siena"}})
	provider.AwaitGone(t, nm)
	assert.Contains(t, provider.AwaitEvent(t, tenant, offloading.NamespaceMapKind, "provider", remotedata.HeldReason).Note, "claims have data: data")
	provider.AwaitEvent(t, metav1.NamespaceDefault, "Namespace", "shop-siena", remotedata.HeldReason)
	if remoteNamespace(t, "shop-siena").DeletionTimestamp != nil {
		t.Fatal("the namespace with data is deleted")
	}

	again := replicated(tenant, "siena", map[string]string{"shop": "shop-siena"})
	provider.Create(t, again)
	awaitPhases(t, again, phases{"shop": offloading.MappingAccepted})
	provider.Patch(t, again, `{"spec":{"desiredMapping":null}}`)
	provider.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-siena"}})
}

// An administrator of the provider may confirm it.
func TestADeletedMapTakesDataThatIsConfirmed(t *testing.T) {
	tenant := tenant(t, "terni")
	provider.StartManager(t)
	nm := replicated(tenant, "terni", map[string]string{"shop": "shop-terni"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	provider.BoundClaim(t, "elsewhere", "shop-terni", corev1.PersistentVolumeReclaimDelete)
	provider.Patch(t, nm, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	provider.Delete(t, nm)
	provider.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-terni"}})
	provider.AwaitGone(t, nm)
}
