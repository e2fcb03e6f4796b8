// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
)

var (
	sliceKind   = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	shadowKind  = offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowEndpointSliceKind)
	serviceKind = corev1.SchemeGroupVersion.WithKind(ServiceKind)
)

// lab is a pair of clusters with the slice web-1 of the Service web. Its methods act on this slice.
type lab struct {
	*kindtest.Pair
	t     *testing.T
	scope *engine.Scope
}

func newLab(t *testing.T, edit func(*engine.Options)) *lab {
	t.Helper()
	l := &lab{Pair: kindtest.New(t, edit, Kind()), t: t}
	l.scope = l.Prepare(Name)
	return l
}

// service stores the Service with the given annotations, in YAML flow style.
func (l *lab) service(annotations string) {
	l.t.Helper()
	l.Here.Put(l.t, kindtest.Object(l.t, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop,
  annotations: `+annotations+`}}`))
	l.syncService()
}

// slice stores the slice with the given annotations, in YAML flow style.
func (l *lab) slice(annotations string) {
	l.t.Helper()
	object := kindtest.Object(l.t, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1,
  namespace: shop, labels: {kubernetes.io/service-name: web}, annotations: `+annotations+`},
  addressType: IPv4, endpoints: [{addresses: [10.1.0.1]}]}`)
	if service := l.Here.Get(serviceKind, kindtest.Namespace, "web"); service != nil {
		object.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1",
			"kind": "Service", "name": "web", "uid": string(service.GetUID())}}
	}
	l.Here.Put(l.t, object)
	l.sync()
}

func (l *lab) sync() {
	l.t.Helper()
	slices, copied := l.scope.Caches()
	l.Sync(l.Here, slices, sliceKind, kindtest.Namespace, "web-1")
	l.Sync(l.Provider, copied, shadowKind, kindtest.RemoteNamespace, "web-1")
}

// syncService brings the cache of Services up to date.
func (l *lab) syncService() {
	l.t.Helper()
	l.Sync(l.Here, l.scope.State.(*informer.Informer), serviceKind, kindtest.Namespace, "web")
}

// hasCopy evaluates the slice, and reports whether it has a copy afterwards.
func (l *lab) hasCopy() bool {
	l.t.Helper()
	require.NoError(l.t, l.Reconcile(Name, "web-1"))
	l.sync()
	return l.Provider.Get(shadowKind, kindtest.RemoteNamespace, "web-1") != nil
}

const (
	skip  = `{` + wire.SkipReflectionAnnotation + `: "true"}`
	allow = `{` + wire.AllowReflectionAnnotation + `: "true"}`
)

// TestSlicesCrossWithTheirServices checks, for each policy, which annotations decide whether a slice is reflected.
func TestSlicesCrossWithTheirServices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy         engine.Policy
		service, slice string // annotations; if service is "", the Service does not exist
		crosses        bool
	}{
		"neither":                      {engine.DenyList, "{}", "{}", true},
		"an excluded Service":          {engine.DenyList, skip, "{}", false},
		"an excluded slice":            {engine.DenyList, "{}", skip, false},
		"no Service":                   {engine.DenyList, "", "{}", true},
		"allowed by default? No":       {engine.AllowList, "{}", "{}", false},
		"an allowed Service":           {engine.AllowList, allow, "{}", true},
		"an allowed slice":             {engine.AllowList, "{}", allow, true},
		"an allowed slice, no Service": {engine.AllowList, "", allow, true},
		"no Service, and not allowed":  {engine.AllowList, "", "{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *engine.Options) { o.Kinds[0].Policy = c.policy })
			if c.service != "" {
				l.service(c.service)
			}
			l.slice(c.slice)
			assert.Equal(t, c.crosses, l.hasCopy())
		})
	}
}

// TestChangesOfAServiceReconcileItsSlices checks that the slices of a Service are enqueued if a user changes its
// annotations, but not if the virtual kubelet itself changes the Service or if the Service is deleted.
func TestChangesOfAServiceReconcileItsSlices(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.service("{}")
	l.slice("{}")
	require.True(t, l.hasCopy())
	l.Queued(Name)
	l.service(`{` + wire.StatusFromAnnotation + `: milan}`)
	assert.Empty(t, l.Queued(Name), "our own annotation")
	l.service(skip)
	assert.Equal(t, []string{"web-1"}, l.Queued(Name))
	assert.False(t, l.hasCopy())
	l.Queued(Name)
	l.Here.Remove(serviceKind, kindtest.Namespace, "web")
	l.syncService()
	assert.Empty(t, l.Queued(Name), "its own slices are deleted with it")
	l.service("{}")
	l.Here.Remove(sliceKind, kindtest.Namespace, "web-1")
	l.sync()
	require.NotPanics(t, func() { l.service(skip) })
}

// TestPluginsSeeTheAnnotationsOfTheService checks that the context of the outgoing chain contains the annotations of
// the Service.
func TestPluginsSeeTheAnnotationsOfTheService(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.service(`{example.com/a: b}`)
	l.slice("{}")
	in := l.Manager.Handler(Name).Inputs(l.scope, l.scope.Object(kindtest.Key("web-1")))
	require.NotNil(t, in.Outgoing)
	assert.Equal(t, map[string]any{"example.com/a": "b"}, in.Outgoing.Context["serviceAnnotations"])
	assert.Nil(t, in.Incoming)
}

// TestTheSlicesOfTheAPIServerStay checks that the endpoints of this cluster's API server are never reflected.
func TestTheSlicesOfTheAPIServerStay(t *testing.T) {
	t.Parallel()
	never := Kind().Never
	for text, want := range map[string]bool{
		`{name: kubernetes, namespace: default}`:                                              true,
		`{name: other, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}`: true,
		`{name: kubernetes, namespace: shop}`:                                                 false,
		`{name: other, namespace: shop, labels: {kubernetes.io/service-name: kubernetes}}`:    false,
	} {
		assert.Equal(t, want, never(kindtest.Object(t, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice,
  metadata: `+text+`}`)), text)
	}
}

// TestErrorsOfASlice checks the class of each error, and that a failed plugin leaves the copy unchanged.
func TestErrorsOfASlice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure *apistub.Failure
		class   failure.Class
	}{
		"refused":     {apistub.Forbidden, failure.Refused},
		"overloaded":  {apistub.Overloaded, failure.Throttled},
		"unavailable": {apistub.Unavailable, failure.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.slice("{}")
			l.Provider.Once("create", c.failure)
			kindtest.RequireClass(t, c.class, evaluation.Out, l.Reconcile(Name, "web-1"))
		})
	}
	t.Run("a failed plugin", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, nil)
		l.slice("{}")
		require.True(t, l.hasCopy())
		l.Chains.Set(host.Outgoing, kindtest.Fail)
		kindtest.RequireClass(t, failure.Plugin, evaluation.Out, l.Reconcile(Name, "web-1"))
		assert.NotNil(t, l.Provider.Get(shadowKind, kindtest.RemoteNamespace, "web-1"))
		l.Chains.Set(host.Outgoing, kindtest.Skip)
		require.False(t, l.hasCopy(), "a skipped slice has no copy")
	})
}
