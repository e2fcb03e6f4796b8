// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// stream returns an API server that has no objects at first, and sends the objects that it receives from a channel to
// the watch.
func stream(t *testing.T, comes <-chan string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		flush := http.NewResponseController(w).Flush
		switch query := r.URL.Query(); {
		case query.Get("watch") == "":
			_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		case query.Get("sendInitialEvents") == "true":
			_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		_ = flush()
		for {
			select {
			case name := <-comes:
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":%q,"resourceVersion":"2"}}}`+"\n", name)
				_ = flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestWatchesGoOnWithoutResync checks that a running watch has no goroutine that waits for a resync, and still delivers
// objects.
func TestWatchesGoOnWithoutResync(t *testing.T) {
	comes := make(chan string)
	client, err := dynamicclient.New(&rest.Config{Host: stream(t, comes).URL}, dynamicclient.Options{})
	require.NoError(t, err)
	i := (&Source{Client: client}).New(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Options{Selection: Selection{Namespace: "shop"}})
	seen := make(chan string, 1)
	i.OnEvent(func(_, object *unstructured.Unstructured, _ bool) { seen <- object.GetName() })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { i.Run(ctx); close(ended) }()

	select {
	case comes <- "late":
	case <-time.After(2 * time.Minute):
		t.Fatal("the informer does not watch")
	}
	select {
	case name := <-seen:
		if name != "late" {
			t.Errorf("saw %s", name)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the event was not delivered")
	}
	stacks := make([]byte, 1<<20)
	none := func(context.Context) (bool, error) {
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "startResync"), nil
	}
	require.NoError(t, wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 2*time.Minute, true, none), "a goroutine waits for a resync")
	stop()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("the informer did not end")
	}
}
