// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/client-go/kubernetes"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/test/support/registrytest"
)

// TestFaultsOfSourcesLeaveTheActiveRevision checks that each fault of a source has its own reason, is followed by
// another attempt, and does not change the active revision.
func TestFaultsOfSourcesLeaveTheActiveRevision(t *testing.T) {
	secure, plain := registrytest.New(t, true), registrytest.New(t, false)
	start(t, func(o *plugin.Options) {
		o.Sources.StallTimeout = 2 * time.Second
	})
	trust := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: "registry-ca"}, Data: map[string][]byte{"ca.crt": secure.Authorities()}}
	cluster.Create(t, trust)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), trust) })
	wasm := assemble(t, manifest, "", hook+`(func (export "faults"))`)
	layer := static.NewLayer(wasm, "application/wasm")
	bomb := append(tarred(t, "plugin.wasm"), make([]byte, 64<<20)...)
	for title, c := range map[string]struct {
		fault    registrytest.Fault
		layers   []v1.Layer
		isForAMD bool // the image is an index without an image for WebAssembly
		distrust bool
		host     string // another name of the registry, which is not in its certificate
		reason   string
	}{
		"401":                    {reason: "Unauthorized", fault: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusUnauthorized) }},
		"404":                    {reason: "NotFound", fault: registrytest.OnManifests(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })},
		"unknown authority":      {reason: "UntrustedCertificate", distrust: true},
		"wrong host certificate": {reason: "UntrustedCertificate", host: "localhost"},
		"truncated body": {reason: "Truncated", fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(wasm)))
			_, _ = w.Write(wasm[:10])
		})},
		"stalled body":    {reason: "Stalled", fault: registrytest.OnBlobs(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
		"layer of 200 MB": {reason: "TooLarge", fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", strconv.Itoa(200<<20)) })},
		"redirect without TLS": {reason: "ForbiddenRedirect", fault: registrytest.OnBlobs(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain.URL, http.StatusTemporaryRedirect)
		})},
		"altered layer":      {reason: "DigestMismatch", fault: registrytest.OnBlobs(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.ToUpper(wasm)) })},
		"down":               {reason: "Unavailable", fault: refuseAll},
		"bomb in gzip":       {reason: "TooLarge", layers: []v1.Layer{static.NewLayer(gzipped(t, bomb), types.OCILayer)}},
		"other media type":   {reason: "WrongMediaType", layers: []v1.Layer{static.NewLayer(wasm, "application/zip")}},
		"two layers":         {reason: "WrongMediaType", layers: []v1.Layer{layer, static.NewLayer([]byte("b"), types.MediaType("text/plain"))}},
		"index without wasm": {reason: "WrongMediaType", isForAMD: true},
	} {
		t.Run(title, func(t *testing.T) {
			p := await(t, declare(t, wasm, nil), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
			p = awaitSomeActive(t, p)
			secure.Inject(nil)
			layers := c.layers
			if layers == nil {
				layers = []v1.Layer{layer}
			}
			image := "faults/" + p.Name + ":1"
			if c.isForAMD {
				secure.PushIndex(t, image, registrytest.Image(t, layers...), "amd64")
			} else {
				secure.Push(t, image, registrytest.Image(t, layers...))
			}
			secure.Inject(c.fault)
			authorities := `,"caSecret":{"name":"registry-ca"}`
			if c.distrust {
				authorities = ""
			}
			host := secure.Host()
			if c.host != "" {
				host = strings.Replace(host, "127.0.0.1", c.host, 1)
			}
			cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"source":{"configMap":null,"oci":{"image":%q%s}}}}`, host+"/"+image, authorities))
			now := await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, c.reason)
			assert.Contains(t, message(now, plugins.FetchedCondition), "next try at")
			assert.NotNil(t, now.Status.Source.NextTry)
			assert.Equal(t, p.Status.ActiveRevision, now.Status.ActiveRevision)
		})
	}
}

// TestModulesAreFetchedOneAfterTheOther checks that the modules of two plugins are not in memory at the same time while
// they are fetched.
func TestModulesAreFetchedOneAfterTheOther(t *testing.T) {
	i := registrytest.New(t, false)
	start(t, func(o *plugin.Options) { o.Sources.InsecureRegistries = []string{i.Host()} })
	for _, name := range []string{"a", "b"} {
		i.Push(t, name+":1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+fmt.Sprintf(`(func (export "%s"))`, name))))
	}
	var fetching, most atomic.Int32
	resolved := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	var closed [2]atomic.Bool
	i.Inject(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for n, name := range []string{"a", "b"} {
			if strings.Contains(r.URL.Path, "/"+name+"/manifests/") && closed[n].CompareAndSwap(false, true) {
				close(resolved[name])
			}
		}
		if !registrytest.IsBlob(r) {
			next.ServeHTTP(w, r)
			return
		}
		now := fetching.Add(1)
		defer fetching.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		// The other plugin has resolved its image. Without the semaphore, it would fetch its module now.
		for _, done := range resolved {
			select {
			case <-done:
			case <-r.Context().Done():
			}
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-r.Context().Done():
		}
		next.ServeHTTP(w, r)
	})
	var declared []*plugins.ReflectionPlugin
	for _, name := range []string{"a", "b"} {
		declared = append(declared, declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
			s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/" + name + ":1"}}
		}))
	}
	for _, p := range declared {
		await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	}
	assert.EqualValues(t, 1, most.Load(), "modules that were fetched at the same time")
}

// TestARollbackDoesNotWaitForTheSource checks that a rollback does not wait for the source of the plugin, which might
// not respond, neither before nor during a fetch.
func TestARollbackDoesNotWaitForTheSource(t *testing.T) {
	i := registrytest.New(t, false)
	options := func(o *plugin.Options) {
		o.Sources.InsecureRegistries, o.Sources.StallTimeout = []string{i.Host()}, 5*time.Minute
	}
	manager := start(t, options)
	node := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	i.Push(t, "rolled:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+`(func (export "rolled"))`)))
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/rolled:1", Interval: &metav1.Duration{Duration: time.Minute}}}
	})
	good := awaitSomeActive(t, p).Status.ActiveRevision
	for n, when := range []string{"before", "during"} {
		changeConfig(t, p, n)
		controllertest.Eventually(t, "another active revision", func() error {
			cluster.Get(t, p, "", p.Name)
			if p.Status.ActiveRevision == good {
				return fmt.Errorf("the conditions are %+v", p.Status.Conditions)
			}
			return nil
		})
		manager.Stop(t)
		asked := make(chan struct{}, 100)
		i.Inject(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			asked <- struct{}{}
			<-r.Context().Done()
		})
		rollBack := func() { reportState(t, p.Status.ActiveRevision, node, plugins.RolledBackPlugin, "all failed") }
		if when == "before" {
			rollBack()
		}
		// A controller manager that starts resolves the tag at once.
		manager = start(t, options)
		<-asked
		if when == "during" {
			rollBack()
		}
		awaitActive(t, p, good)
		manager.Stop(t)
		i.Inject(nil)
		cluster.PatchStatus(t, p, `{"status":{"source":{"nextTry":null}}}`)
		manager = start(t, options)
	}
}

// TestReportsDoNotListModules checks that reports of virtual nodes cause no list of the stored modules.
func TestReportsDoNotListModules(t *testing.T) {
	start(t)
	node := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, func(s *plugins.ReflectionPluginSpec) {
		s.Rollout.Rehearsal = &plugins.PluginRehearsal{Approval: plugins.ManualApproval}
	})
	report := func(changed int) {
		reportRehearsal(t, p.Status.CandidateRevision, node, plugins.PluginRehearsalResult{Objects: 100, Changed: int64(changed)})
		controllertest.Eventually(t, "the report to be in the condition", func() error {
			cluster.Get(t, p, "", p.Name)
			if text := message(p, plugins.RehearsedCondition); !strings.Contains(text, fmt.Sprintf("changes %d,", changed)) {
				return fmt.Errorf("the message is %q", text)
			}
			return nil
		})
	}
	report(1)
	before := moduleRequests(t)
	for n := 2; n < 7; n++ {
		report(n)
	}
	assert.Equal(t, before, moduleRequests(t), "requests for PluginModules")
}

// moduleRequests returns how many GETs and LISTs of PluginModules the API server has answered.
func moduleRequests(t *testing.T) (n float64) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	found := false
	for line := range strings.Lines(string(text)) {
		isRead := strings.Contains(line, `verb="LIST"`) || strings.Contains(line, `verb="GET"`)
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="pluginmodules"`) && isRead {
			count, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			require.NoError(t, err)
			n, found = n+count, true
		}
	}
	require.True(t, found)
	return n
}

// TestTheStatusIsWrittenAfterTheDeadline checks that a reconciliation whose deadline is over still writes the status
// with the time of the next attempt.
func TestTheStatusIsWrittenAfterTheDeadline(t *testing.T) {
	i := registrytest.New(t, false)
	start(t, func(o *plugin.Options) {
		o.Sources.InsecureRegistries, o.Sources.StallTimeout, o.Deadline = []string{i.Host()}, time.Minute, time.Second
	})
	i.Inject(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() })
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: i.Host() + "/a:1"}}
	})
	p = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "Unavailable")
	require.NotNil(t, p.Status.Source.NextTry)
}

// tarred returns an archive with an empty file.
func tarred(t *testing.T, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600}))
	require.NoError(t, w.Close())
	return out.Bytes()
}

// gzipped returns compressed data.
func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}
