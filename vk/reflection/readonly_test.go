// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// readOnly returns a context with which requests cannot change anything.
func readOnly(t *testing.T) context.Context {
	t.Helper()
	return readonly.With(t.Context(), rate.NewLimiter(rate.Inf, 1))
}

// changes lists the requests of the manager that are not reads.
func changes(t *testing.T, s *reflectiontest.Side) (found []reflectiontest.Request) {
	t.Helper()
	return slices.DeleteFunc(s.Requests(t), func(r reflectiontest.Request) bool {
		return r.ObjectRef.Resource == "selfsubjectaccessreviews" || slices.Contains([]string{"get", "list", "watch"}, r.Verb) && r.ObjectRef.Subresource == ""
	})
}

// TestReadOnlyClients checks that the clients refuse every kind of write if its context is read-only (see readOnly),
// so that no write reaches an API server.
func TestReadOnlyClients(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := reflectiontest.Must(reflection.New(l.Options))(t)
	ctx, env := readOnly(t), m.Env(reflection.PodKind)
	service := l.Local.Create(t, l.Namespace, service("web", ""))
	service.SetManagedFields(nil)
	for name, side := range map[string]struct {
		client    dynamic.Interface
		namespace string
	}{"local": {env.Clients.Local, l.Namespace}, "remote": {env.Clients.Remote, l.RemoteNS}} {
		services, pods := side.client.Resource(servicesResource).Namespace(side.namespace), side.client.Resource(reflectiontest.Resources["Pod"]).Namespace(side.namespace)
		for verb, write := range map[string]func() error{
			"create": func() error { _, err := services.Create(ctx, service, metav1.CreateOptions{}); return err },
			"update": func() error { _, err := services.Update(ctx, service, metav1.UpdateOptions{}); return err },
			"status": func() error { _, err := services.UpdateStatus(ctx, service, metav1.UpdateOptions{}); return err },
			"patch": func() error {
				_, err := services.Patch(ctx, "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
				return err
			},
			"apply": func() error {
				_, err := services.Apply(ctx, "web", service, metav1.ApplyOptions{FieldManager: "test"})
				return err
			},
			"delete":     func() error { return services.Delete(ctx, "web", metav1.DeleteOptions{}) },
			"collection": func() error { return services.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) },
			"eviction": func() error {
				_, err := pods.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "policy/v1", "kind": "Eviction",
					"metadata": map[string]any{"name": "web"}}}, metav1.CreateOptions{}, "eviction")
				return err
			},
			"exec": func() error { _, err := pods.Get(ctx, "web", metav1.GetOptions{}, "exec"); return err },
		} {
			if err := write(); !readonly.Refused(err) {
				t.Errorf("%s, %s: %v", name, verb, err)
			}
		}
		_, err := services.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
	}
	_, err := env.Clients.Core.ServiceAccounts(l.Namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.True(t, readonly.Refused(err), "%v", err)
	require.Empty(t, changes(t, l.Local))
	require.Empty(t, changes(t, l.Remote))
	require.True(t, m.Reachable())
}

// TestReadOnlyHandlers checks that an evaluation with a read-only context sends and records no write, although the
// copy of the object must be created, updated or deleted. The same evaluation with an ordinary context must still
// send the write.
func TestReadOnlyHandlers(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds, o.Registerer = reflectiontest.Kinds(reflection.ServiceKind, reflection.EndpointSliceKind), registry
	})
	m := reflectiontest.Must(reflection.New(l.Options))(t)
	w := evaluation.NewWorker(slog.New(slog.DiscardHandler))
	services := m.Prepare(t.Context(), reflection.ServiceKind, l.Namespace, l.RemoteNS)
	m.PrepareBeside(services, reflection.EndpointSliceKind)
	slices := m.Scope(reflection.EndpointSliceKind, l.Namespace)
	object := l.Local.Create(t, l.Namespace, service("web", ""))
	require.NoError(t, services.Put(object, nil))
	require.NoError(t, slices.Put(l.Local.Create(t, l.Namespace, slice("web", "web", "10.1.2.3")), nil))
	evaluate := func(ctx context.Context, kind string, s *engine.Scope) error {
		return m.Handler(kind).Reconcile(ctx, w, s, Key{Namespace: l.Namespace, Name: "web"})
	}
	// The evaluation is repeated, because a guard or a backoff that counted the attempts would have an effect only
	// after several of them.
	for range 20 {
		require.True(t, readonly.Refused(evaluate(readOnly(t), reflection.ServiceKind, services)), "apply")
		require.True(t, readonly.Refused(evaluate(readOnly(t), reflection.EndpointSliceKind, slices)), "create")
	}
	require.Empty(t, changes(t, l.Local))
	require.Empty(t, changes(t, l.Remote))
	require.True(t, m.Reachable())
	for _, family := range reflectiontest.Must(registry.Gather())(t) {
		require.NotEqual(t, "refract_api_writes_total", family.GetName())
	}

	require.NoError(t, evaluate(t.Context(), reflection.ServiceKind, services))
	require.NoError(t, evaluate(t.Context(), reflection.EndpointSliceKind, slices))
	require.Len(t, changes(t, l.Remote), 2)
	copied := l.Present(l.Remote, "Service", l.RemoteNS, "web")
	changed := object.DeepCopy()
	changed.SetLabels(map[string]string{"tier": "front"})
	require.NoError(t, services.Put(changed, copied))
	require.True(t, readonly.Refused(evaluate(readOnly(t), reflection.ServiceKind, services)), "update")
	changed.SetAnnotations(map[string]string{wire.SkipReflectionAnnotation: "true"})
	require.NoError(t, services.Put(changed, copied))
	require.True(t, readonly.Refused(evaluate(readOnly(t), reflection.ServiceKind, services)), "delete")
	require.Len(t, changes(t, l.Remote), 2)
}
