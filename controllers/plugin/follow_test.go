// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/registrytest"
)

// TestHTTPSource checks that a module is fetched from a URL and accepted, and that the active revision stays if the
// content differs or the server requires credentials.
func TestHTTPSource(t *testing.T) {
	start(t)
	wasm := assemble(t, manifest, "", hook+`(func (export "http"))`)
	var refuses atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(wasm)
	}))
	t.Cleanup(server.Close)
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	trust := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installation, Name: "http-ca"}, Data: map[string][]byte{"ca.crt": authorities}}
	cluster.Create(t, trust)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), trust) })
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{HTTP: &plugins.HTTPSource{
			URL: server.URL + "/m.wasm", SHA256: pluginsource.Digest(wasm), CASecret: &plugins.SecretReference{Name: "http-ca"},
		}}
	})
	active := awaitSomeActive(t, p).Status.ActiveRevision

	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"source":{"http":{"sha256":%q}}}}`, strings.Repeat("0", 64)))
	now := await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "DigestMismatch")
	assert.Equal(t, active, now.Status.ActiveRevision)
	refuses.Store(true)
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"source":{"http":{"url":%q}}}}`, server.URL+"/other.wasm"))
	now = await(t, p, plugins.FetchedCondition, metav1.ConditionFalse, "Unauthorized")
	assert.Contains(t, message(now, plugins.FetchedCondition), "no credentials are sent to an http source")
	assert.Equal(t, active, now.Status.ActiveRevision)
}

// startShifted starts a manager with a clock that the test can shift, for images in the registry.
func startShifted(t *testing.T, registry *registrytest.Registry, policy string) (*controllertest.Manager, *controllertest.ShiftedClock) {
	t.Helper()
	manager := rbac.Manager{Namespace: installation, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, cluster.Grant(t.Context(), manager.Plugins()...))
	shifted := &controllertest.ShiftedClock{}
	return cluster.StartManager(t, func(o *controllers.Options) {
		o.Installation, o.Clock = installation, shifted
		o.Plugins = plugin.Options{
			Enabled: true, Recheck: time.Second, TrustPolicy: policy,
			Sources: pluginsource.Options{StallTimeout: 20 * time.Second, InsecureRegistries: []string{registry.Host()}},
		}
	}), shifted
}

// TestMovedTagIsFollowed checks that a tag is resolved again after its interval, and not before, and that the image that
// it then refers to becomes the active revision.
func TestMovedTagIsFollowed(t *testing.T) {
	registry := registrytest.New(t, false)
	_, shifted := startShifted(t, registry, "")
	push := func(version string) {
		registry.Push(t, "moved:1", registrytest.ModuleImage(t, assemble(t, manifest, "", hook+fmt.Sprintf(`(func (export %q))`, version))))
	}
	push("a")
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{Image: registry.Host() + "/moved:1", Interval: &metav1.Duration{Duration: time.Hour}}}
	})
	first := awaitSomeActive(t, p).Status
	push("b")
	before := reconciliations(t)
	controllertest.Eventually(t, "two reconciliations", func() error {
		if n := reconciliations(t) - before; n < 2 {
			return fmt.Errorf("there were %v", n)
		}
		return nil
	})
	cluster.Get(t, p, "", p.Name)
	require.Equal(t, first.ActiveRevision, p.Status.ActiveRevision, "before the interval is over")
	shifted.Shift(time.Hour)
	controllertest.Eventually(t, "the other image", func() error {
		cluster.Get(t, p, "", p.Name)
		if p.Status.ActiveRevision == first.ActiveRevision || p.Status.Source.SHA256 == first.Source.SHA256 {
			return fmt.Errorf("its status is %+v", p.Status)
		}
		return nil
	})
}

// TestATagThatMovesToAnUnsignedImageIsRefused checks that the metric reports a source whose tag has moved to an image
// without the required signature. The conditions Accepted and Ready are then about the module that the source had
// before, which stays active.
func TestATagThatMovesToAnUnsignedImageIsRefused(t *testing.T) {
	registry := registrytest.New(t, false)
	key, public := newKey(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	required := fmt.Appendf(nil, "prefixes:\n- prefix: %s\n  mode: Require\n  keys: [%q]\n", registry.Host(), public)
	require.NoError(t, os.WriteFile(policy, required, 0o600))
	manager, shifted := startShifted(t, registry, policy)
	push := func(version string) name.Digest {
		wasm := assemble(t, manifest, "", hook+fmt.Sprintf(`(func (export %q))`, version))
		return registry.Push(t, "unsigned:1", registrytest.ModuleImage(t, wasm))
	}
	sign(t, push("signed"), key)
	p := declare(t, nil, func(s *plugins.ReflectionPluginSpec) {
		s.Source = plugins.PluginSource{OCI: &plugins.OCISource{
			Image: registry.Host() + "/unsigned:1", Interval: &metav1.Duration{Duration: time.Hour},
		}}
	})
	active := awaitSomeActive(t, p).Status.ActiveRevision
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})

	unsigned := push("unsigned")
	shifted.Shift(time.Hour)
	now := await(t, p, plugins.VerifiedCondition, metav1.ConditionFalse, "Unsigned")
	assert.Equal(t, active, now.Status.ActiveRevision)
	await(t, p, plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1, "Refused": 1})

	sign(t, unsigned, key)
	shifted.Shift(time.Minute)
	await(t, p, plugins.VerifiedCondition, metav1.ConditionTrue, "Signed")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})
}
