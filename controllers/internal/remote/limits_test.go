// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/remote"
)

// hostile is a provider's API server whose responses all have the same compressed body.
type hostile struct {
	contentType string
	write       func(body io.Writer)
	lists       atomic.Int32
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if strings.Contains(request.URL.Path, "/leases/") {
		http.NotFound(w, request) // the API server does not report a cluster ID
		return
	}
	h.lists.Add(1)
	w.Header().Set("Content-Type", h.contentType)
	w.Header().Set("Content-Encoding", "gzip")
	body := gzip.NewWriter(w)
	defer body.Close() //nolint:errcheck // the client may have gone
	h.write(body)
}

// repeated returns a function that writes a list with a million equal items.
func repeated(before, item, after string) func(io.Writer) {
	return func(body io.Writer) {
		_, _ = fmt.Fprintf(body, "%s%s%s%s", before, strings.Repeat(item+",", 1_000_000), item, after)
	}
}

func open(t *testing.T, server http.Handler, options remote.Options) *remote.Remote {
	t.Helper()
	provider := httptest.NewTLSServer(server)
	t.Cleanup(provider.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["p"] = &clientcmdapi.Cluster{Server: provider.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw})}
	config.Contexts["p"] = &clientcmdapi.Context{Cluster: "p"}
	config.CurrentContext = "p"
	kubeconfig, err := clientcmd.Write(*config)
	require.NoError(t, err)
	options.Scheme, err = controllers.Scheme()
	require.NoError(t, err)
	pool := remote.NewPool(options)
	pool.Bind(t.Context())
	opened, err := pool.Open(types.NamespacedName{Namespace: "tenant", Name: "milan"}, remote.Access{Kubeconfig: kubeconfig, Namespace: "tenant", Provider: "milan"})
	require.NoError(t, err)
	return opened
}

// allocated returns how many MiB the function do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// mostMiB limits the allocations for one response. This includes the allocations of the server, which runs in this
// process.
const mostMiB = 64

func TestAnswersAreLimitedByWhatTheyBecome(t *testing.T) {
	maps := offloading.GroupVersion.WithKind(offloading.NamespaceMapKind)
	for name, server := range map[string]*hostile{
		"items":             {contentType: "application/json", write: repeated(`{"items":[`, `{}`, `]}`)},
		"fields of an item": {contentType: "application/json", write: repeated(`{"items":[{"metadata":{"ownerReferences":[`, `{}`, `]}}]}`)},
		"entries of a map": {contentType: "application/json", write: func(body io.Writer) {
			_, _ = fmt.Fprint(body, `{"items":[{"spec":{"desiredMapping":{`)
			for i := range 1_000_000 {
				_, _ = fmt.Fprintf(body, `"%d":"",`, i)
			}
			_, _ = fmt.Fprint(body, `"":""}}}]}`)
		}},
		"YAML": {contentType: "application/yaml", write: func(body io.Writer) {
			_, _ = fmt.Fprintf(body, "items:\n%s", strings.Repeat("- {}\n", 1_000_000))
		}},
		"protobuf": {contentType: "application/vnd.kubernetes.protobuf", write: func(body io.Writer) {
			_, _ = fmt.Fprintf(body, "k8s\x00%s", strings.Repeat("\x12\x00", 1_000_000))
		}},
		"bytes": {contentType: "application/json", write: func(body io.Writer) {
			_, _ = fmt.Fprintf(body, `{"kind":%q}`, strings.Repeat("x", 8<<20))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := open(t, server, remote.Options{Kind: maps})
			list := &offloading.NamespaceMapList{}
			var err error
			took := allocated(func() { err = provider.List(t.Context(), list) })
			require.ErrorContains(t, err, "which is the limit")
			assert.Less(t, took, uint64(mostMiB), "MiB")
		})
	}
}

func TestOrdinaryAnswersAreRead(t *testing.T) {
	slices := auth.GroupVersion.WithKind(auth.ResourceSliceKind)
	item := `{"metadata":{"name":"milan","labels":{"a":"b"}},"spec":{"resources":{"cpu":"1","memory":"1Gi"}}}`
	server := &hostile{contentType: "application/json", write: func(body io.Writer) {
		_, _ = fmt.Fprintf(body, `{"items":[%s]}`, strings.Repeat(item+",", remote.MaxItems-1)+item)
	}}
	provider, list := open(t, server, remote.Options{Kind: slices}), &auth.ResourceSliceList{}
	require.NoError(t, provider.List(t.Context(), list))
	assert.Len(t, list.Items, remote.MaxItems)
}

// TestWatchesAreLimitedByWhatTheyBecome checks that an endless watch does not use up the memory.
func TestWatchesAreLimitedByWhatTheyBecome(t *testing.T) {
	event := `{"type":"ADDED","object":{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"%d","annotations":{%s}}}}` + "\n"
	annotations := strings.Repeat(`"a":"",`, 1000) + `"a":""`
	server := &hostile{contentType: "application/json"}
	server.write = func(body io.Writer) {
		for i := 0; ; i++ { // the loop ends when the client closes the connection
			if _, err := fmt.Fprintf(body, event, i, annotations); err != nil {
				return
			}
		}
	}
	provider := open(t, server, remote.Options{Kind: offloading.GroupVersion.WithKind(offloading.NamespaceMapKind), SameName: true})
	require.NoError(t, provider.Watch())
	require.Eventually(t, func() bool { return server.lists.Load() >= 2 }, time.Minute, 10*time.Millisecond, "the first watch was not given up")
}
