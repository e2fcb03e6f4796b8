// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package optionalapi_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/optionalapi"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &cluster)) }

var resource = schema.GroupVersionResource{Group: "networking.liqo.io", Version: "v1beta1", Resource: "connections"}

// TestAResourceIsWatchedOnceItIsServed checks that an informer waits without log messages until the CRD of its resource
// is installed, and then contains the objects. Other errors must be logged.
func TestAResourceIsWatchedOnceItIsServed(t *testing.T) {
	var mu sync.Mutex
	var logged []string
	requests, missing := 0, 0
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, prefix+args)
	}, funcr.Options{})
	informer, err := optionalapi.NewInformer(cluster.Config(), resource, optionalapi.Options{Observe: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		if apierrors.IsNotFound(err) {
			missing++
		}
	}})
	require.NoError(t, err)
	run(t, log, informer.RunWithContext)
	controllertest.Eventually(t, "three attempts", func() error {
		mu.Lock()
		defer mu.Unlock()
		if missing < 3 {
			return fmt.Errorf("%d of %d requests have found no resource", missing, requests)
		}
		return nil
	})
	assert.False(t, informer.HasSynced())
	mu.Lock()
	assert.Empty(t, logged)
	assert.Equal(t, requests, missing)
	mu.Unlock()

	text, err := os.ReadFile("../../foreigncluster/testdata/connections.yaml")
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(text, &crd.Object))
	cluster.Create(t, crd)
	controllertest.Eventually(t, "the watch of the new resource", func() error {
		if !informer.HasSynced() {
			return fmt.Errorf("it has not begun")
		}
		return nil
	})
	connection := &unstructured.Unstructured{}
	connection.SetAPIVersion("networking.liqo.io/v1beta1")
	connection.SetKind("Connection")
	connection.SetNamespace("default")
	connection.SetName("gateway")
	cluster.Create(t, connection)
	controllertest.Eventually(t, "the object", func() error {
		if _, found, err := informer.GetStore().GetByKey("default/gateway"); err != nil || !found {
			return fmt.Errorf("found: %t, %w", found, err)
		}
		return nil
	})

	// This user has no permissions.
	config, err := cluster.ConfigFor("nobody")
	require.NoError(t, err)
	forbidden, err := optionalapi.NewInformer(config, resource, optionalapi.Options{})
	require.NoError(t, err)
	run(t, log, forbidden.RunWithContext)
	controllertest.Eventually(t, "the missing permission to be logged", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(logged) == 0 {
			return fmt.Errorf("nothing was logged")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	assert.Contains(t, logged[0], "forbidden")
}

// run runs the informer until the end of the test.
func run(t *testing.T, log klog.Logger, watch func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), log))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
}
