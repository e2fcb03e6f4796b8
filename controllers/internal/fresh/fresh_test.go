// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &cluster)) }

func TestCheck(t *testing.T) {
	nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(t), Name: "milan", Finalizers: []string{"test.example/finalizer"}}}
	cluster.Create(t, nm)
	check := func(cached *offloading.NamespaceMap) error {
		return fresh.Check(t.Context(), cluster.Client, cluster.Client, cached)
	}
	require.NoError(t, check(nm))

	// The outdated cache shows that the object is being deleted, although a restore of etcd has undone the deletion.
	restored := nm.DeepCopy()
	now := metav1.Now()
	restored.DeletionTimestamp = &now
	assert.ErrorContains(t, check(restored), "is not as the cache shows it")
	another := nm.DeepCopy()
	another.UID = "another"
	assert.ErrorContains(t, check(another), "is not as the cache shows it")
	forgotten := nm.DeepCopy()
	forgotten.Name = "turin"
	assert.True(t, apierrors.IsNotFound(check(forgotten)))

	before := nm.DeepCopy()
	cluster.Patch(t, nm, `{"spec":{"desiredMapping":{"shop":"shop-rome"}}}`)
	assert.ErrorContains(t, check(before), "is not as the cache shows it", "its spec has changed")
	require.NoError(t, check(nm))
	require.NoError(t, cluster.Client.Delete(t.Context(), nm))
	assert.ErrorContains(t, check(nm), "is not as the cache shows it", "it is being deleted")
	cluster.Get(t, nm, nm.Namespace, nm.Name)
	require.NoError(t, check(nm))
	cluster.Patch(t, nm, `{"metadata":{"finalizers":null}}`)
}
