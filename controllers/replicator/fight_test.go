// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// awaitFight repeats a write of another client until there is an Event about the map that contains the words.
func awaitFight(t *testing.T, namespace, name string, write func(), words ...string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		for _, event := range consumer.Events(t, namespace, offloading.NamespaceMapKind, name) {
			missing := event.Reason != wire.ReflectionQuarantinedReason
			for _, word := range words {
				missing = missing || !strings.Contains(event.Note, word)
			}
			if !missing {
				return
			}
		}
		write()
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("no Event has the words %q: %v", words, consumer.Events(t, namespace, offloading.NamespaceMapKind, name))
		}
	}
}

// TestACopyThatIsAlwaysChangedIsRestoredSlowly checks that an entry of the copy is restored every few seconds while a
// client on the provider keeps changing it. The Event must name the client and the entry. The provider's status must
// still be copied.
func TestACopyThatIsAlwaysChangedIsRestoredSlowly(t *testing.T) {
	here, there := peer(t, "lodi")
	m := consumer.StartManager(t)
	local := outgoing(here, "lodi", map[string]string{"shop": "shop-home"})
	consumer.Create(t, local)
	copied := awaitDesired(t, &provider, there, "lodi", local.Spec.DesiredMapping)
	count := 0
	revert := func() { // each write also adds an entry, so that the content of the copy is different each time
		count++
		patch := fmt.Sprintf(`{"spec":{"desiredMapping":{"shop":"elsewhere","other":"other-%d"}}}`, count)
		require.NoError(t, provider.Client.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("rival")))
	}
	awaitFight(t, here, "lodi", revert, there+"/lodi", `"rival" (Update)`, "/spec/desiredMapping/shop")
	restored := func() float64 {
		return m.Metric(t, "refract_controller_api_writes_total", "controller", "replicator", "verb", "patch", "destination", "provider")
	}
	before := restored()
	for range 60 {
		revert()
		time.Sleep(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, restored()-before, 4.)

	provider.PatchStatus(t, copied, `{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-home","phase":"Accepted"}}}}`)
	controllertest.Eventually(t, "the status", func() error {
		revert()
		if consumer.Get(t, local, here, "lodi"); local.Status.CurrentMapping["shop"].Phase != offloading.MappingAccepted {
			return fmt.Errorf("it is %v", local.Status)
		}
		return nil
	})
	controllertest.Eventually(t, "the entry to be restored", func() error {
		if provider.Get(t, copied, there, "lodi"); copied.Spec.DesiredMapping["shop"] != "shop-home" {
			return errors.New("it is not restored")
		}
		return nil
	})
}

// TestACopyThatIsAlwaysDeletedIsRecreatedSlowly checks that the copy is recreated every few seconds while a client on
// the provider keeps deleting it.
func TestACopyThatIsAlwaysDeletedIsRecreatedSlowly(t *testing.T) {
	here, there := peer(t, "crema")
	m := consumer.StartManager(t)
	local := outgoing(here, "crema", map[string]string{"shop": "shop-home"})
	consumer.Create(t, local)
	copied := awaitDesired(t, &provider, there, "crema", local.Spec.DesiredMapping)
	remove := func() {
		err := provider.Client.Delete(t.Context(), &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "crema"}})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	}
	awaitFight(t, here, "crema", remove, there+"/crema", "another client deletes it")
	created := func() float64 {
		return m.Metric(t, "refract_controller_api_writes_total", "controller", "replicator", "verb", "create", "destination", "provider")
	}
	before := created()
	for range 60 {
		remove()
		time.Sleep(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, created()-before, 4.)
	*copied = *awaitDesired(t, &provider, there, "crema", local.Spec.DesiredMapping)
}
