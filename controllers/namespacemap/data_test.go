// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/namespacemap"
	"github.com/refract-project/refract/internal/remotedata"
)

// TestADeletedMapKeepsData checks that requested namespaces with data are kept if a NamespaceMap is deleted on the
// provider. The next map uses these namespaces again, and deletes them when the consumer withdraws them.
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

// TestADeletedMapTakesDataThatIsConfirmed checks that data is deleted with the map if an administrator of the provider
// confirms the deletion.
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

// pages records the largest number of claims in one response.
type pages struct {
	client.Reader
	largest int
}

func (p *pages) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := p.Reader.List(ctx, list, options...)
	p.largest = max(p.largest, len(list.(*corev1.PersistentVolumeClaimList).Items))
	return err
}

// TestClaimsAreReadInPages checks that this process keeps only a few of a consumer's claims in memory at a time,
// whatever their number and size.
func TestClaimsAreReadInPages(t *testing.T) {
	namespace := provider.Namespace(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "volume",
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	const count = 2*namespacemap.ClaimsPage + 1
	for i := range count {
		claim := claim.DeepCopy()
		claim.Name = fmt.Sprintf("claim-%02d", i)
		provider.Create(t, claim)
	}
	live := &pages{Reader: provider.Client}
	names, err := namespacemap.BoundClaims(t.Context(), live, namespace)
	require.NoError(t, err)
	assert.Len(t, names, count)
	assert.Equal(t, namespacemap.ClaimsPage, live.largest)
}
