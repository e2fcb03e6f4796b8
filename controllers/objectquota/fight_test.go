// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objectquota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
)

// fought reports whether there is an Event about the ResourceQuota of a namespace that contains the words.
func fought(t *testing.T, namespace string, words ...string) bool {
	t.Helper()
	for _, event := range provider.Events(t, namespace, "ResourceQuota", wire.ConsumerQuota) {
		missing := event.Reason != wire.ReflectionQuarantinedReason
		for _, word := range words {
			missing = missing || !strings.Contains(event.Note, word)
		}
		if !missing {
			return true
		}
	}
	return false
}

// TestALimitThatIsAlwaysRaisedIsRestoredSlowly checks that a limit is restored every few seconds while a client of this
// cluster keeps raising it. The Event must name the client and the field.
func TestALimitThatIsAlwaysRaisedIsRestoredSlowly(t *testing.T) {
	m := provider.StartManager(t, func(o *controllers.Options) { o.ConsumerDefaults = list("services", "3") })
	shop := provider.Extended(t, "arezzo")
	awaitHard(t, shop, list("services", "3"))
	raise := func() {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: wire.ConsumerQuota}}
		err := provider.Client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"services":"1000"}}}`)), client.FieldOwner("rival"))
		if !apierrors.IsConflict(err) {
			require.NoError(t, err)
		}
	}
	restored := func() int { return len(m.Writes.About("PATCH", "/"+shop+"/resourcequotas")) }
	for start := time.Now(); !fought(t, shop, `"rival" (Update)`, "differing: spec.hard.services"); time.Sleep(100 * time.Millisecond) {
		raise()
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("there is no Event after %d writes, but %v", restored(), provider.Events(t, shop, "ResourceQuota", wire.ConsumerQuota))
		}
	}
	before := restored()
	for range 60 {
		raise()
		time.Sleep(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, restored()-before, 4)
	awaitHard(t, shop, list("services", "3"))
}

// TestUsageThatChangesAllTheTimeIsNoFight checks that a consumer that keeps creating and deleting objects does not
// count as a client that reverts the limits of its other namespaces.
func TestUsageThatChangesAllTheTimeIsNoFight(t *testing.T) {
	provider.StartManager(t, func(o *controllers.Options) { o.ConsumerDefaults = list("services", "9") })
	shop, bank := provider.Extended(t, "grosseto"), provider.Extended(t, "grosseto")
	awaitHard(t, shop, list("services", "9"))
	awaitHard(t, bank, list("services", "9"))
	for n := range 6 {
		created := service(shop, fmt.Sprint("c", n), corev1.ServiceTypeClusterIP)
		provider.Create(t, created)
		awaitHard(t, bank, list("services", "8"))
		provider.Delete(t, created)
		awaitHard(t, bank, list("services", "9"))
	}
	assert.False(t, fought(t, bank), "%v", provider.Events(t, bank, "ResourceQuota", wire.ConsumerQuota))
}
