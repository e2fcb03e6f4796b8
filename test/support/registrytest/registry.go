// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package registrytest runs an image registry for tests, behind a proxy that injects faults.
package registrytest

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// Fault handles a request in place of the registry. It may pass the request to the registry, which is next.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Registry is an image registry that runs in this process, on the loopback interface.
type Registry struct {
	*httptest.Server
	fault atomic.Pointer[Fault]
	blobs atomic.Int64
}

// New starts a registry with or without TLS. It stops at the end of the test.
func New(t *testing.T, withTLS bool) *Registry {
	t.Helper()
	r := &Registry{}
	images := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if IsBlob(request) {
			r.blobs.Add(1)
		}
		if fault := r.fault.Load(); fault != nil {
			(*fault)(w, request, images)
			return
		}
		images.ServeHTTP(w, request)
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	if withTLS {
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

// Host returns the host and the port of the registry, as they appear in the names of images.
func (r *Registry) Host() string { return r.Listener.Addr().String() }

// Authorities returns the certificate of the registry in PEM. It is self-signed, so clients must trust it.
func (r *Registry) Authorities() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
}

// Inject makes fault handle all further requests. If fault is nil, the registry handles them again.
func (r *Registry) Inject(fault Fault) {
	if fault == nil {
		r.fault.Store(nil)
		return
	}
	r.fault.Store(&fault)
}

// TakeBlobs returns the number of requests for blobs since the previous call of TakeBlobs.
func (r *Registry) TakeBlobs() int64 { return r.blobs.Swap(0) }

// Push stores an image and returns its digest. The current fault also handles the requests of Push.
func (r *Registry) Push(t *testing.T, image string, content v1.Image) name.Digest {
	t.Helper()
	reference, err := name.ParseReference(r.Host() + "/" + image)
	require.NoError(t, err)
	require.NoError(t, remote.Write(reference, content, trusting()))
	digest, err := content.Digest()
	require.NoError(t, err)
	return reference.Context().Digest(digest.String())
}

// PushIndex stores an index that contains the image for the OS wasip1 and the given architecture.
func (r *Registry) PushIndex(t *testing.T, index string, content v1.Image, architecture string) {
	t.Helper()
	reference, err := name.ParseReference(r.Host() + "/" + index)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(reference, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: content, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "wasip1", Architecture: architecture}},
	}), trusting()))
}

func trusting() remote.Option {
	return remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}) //nolint:gosec // a test
}

// Image returns an image for WebAssembly with the given layers.
func Image(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.wasm.config.v0+json"), layers...)
	require.NoError(t, err)
	return image
}

// ModuleImage returns an image that contains a module.
func ModuleImage(t *testing.T, wasm []byte) v1.Image {
	t.Helper()
	return Image(t, static.NewLayer(wasm, "application/wasm"))
}

// IsBlob reports whether a request reads a blob.
func IsBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:")
}

// OnManifests returns a fault that handles requests for manifests with answer, and passes all others to the registry.
func OnManifests(answer http.HandlerFunc) Fault {
	return onRequests(answer, func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") })
}

// OnBlobs returns a fault that handles requests for blobs with answer, and passes all others to the registry.
func OnBlobs(answer http.HandlerFunc) Fault { return onRequests(answer, IsBlob) }

func onRequests(answer http.HandlerFunc, isAnswered func(*http.Request) bool) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isAnswered(r) {
			answer(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}
}
