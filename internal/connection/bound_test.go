// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/test/support/testenv"
)

// beginnings counts the requests with which a cache starts to fill itself again.
type beginnings struct {
	http.RoundTripper
	count atomic.Int32
}

func (b *beginnings) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if strings.HasSuffix(request.URL.Path, "/configmaps") && request.Method == http.MethodGet && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") {
		b.count.Add(1)
	}
	return b.RoundTripper.RoundTrip(request)
}

func TestAnswersAreBounded(t *testing.T) {
	const most, piece = 1 << 20, 300 << 10
	cluster := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	admin, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	conn, err := connection.New(cluster.Config(), connection.Limits{Bytes: most})
	require.NoError(t, err)
	begun, config := &beginnings{}, conn.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { begun.RoundTripper = next; return begun })
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	maps := admin.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	object := func(name string, version int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
			Data: map[string]string{"version": fmt.Sprint(version), "padding": strings.Repeat("x", piece)}}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		_, err := maps.Create(t.Context(), object(name, 0), metav1.CreateOptions{})
		require.NoError(t, err)
	}

	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "more than 1 MiB") {
		t.Errorf("a list that is too long gives %v", err)
	}
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "d", metav1.GetOptions{})
	assert.NoError(t, err)

	begun.count.Store(0)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "name=a" }))
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(metav1.NamespaceDefault)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for version := 1; version <= 8; version++ {
		_, err := maps.Update(t.Context(), object("a", version), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
			seen, err := lister.Get("a")
			return err == nil && seen.Data["version"] == fmt.Sprint(version), nil
		}))
	}
	if begun.count.Load() < 2 {
		t.Error("after a watch of more than the limit, nothing was listed again")
	}
}
