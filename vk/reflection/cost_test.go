// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestWhatIsNotReflectedCostsNothing checks that 2,000 ConfigMaps in namespaces that are not offloaded, and foreign
// ConfigMaps in the remote namespace, are neither listed, cached nor evaluated. The API servers must serve only one
// watch for each kind and offloaded namespace, and one for each cluster-scoped kind. The watches on the provider must
// select objects with our labels.
func TestWhatIsNotReflectedCostsNothing(t *testing.T) {
	// The test is not parallel, because the creation of so many objects delays all other requests.
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) { o.Kinds, o.FollowIPs, o.Storage.Enabled = nil, true, true })
	l.defineIPs()
	elsewhere, second, extensions := l.Namespace+"-full", l.Namespace+"-second", map[string]string{l.Namespace: l.RemoteNS}
	for _, name := range []string{elsewhere, second} {
		l.Local.CreateNamespace(t, name)
	}
	l.Admit(second)
	extensions[second] = l.AnotherNamespace()
	l.MapNamespaces(extensions)
	l.Start()
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: ours}, data: {a: b}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "ours")
	l.Settled()
	cachedBefore, evaluated := l.Manager.CachedObjects(), l.Evaluated()
	if cachedBefore < 6 { // there are at least two root CAs, the ConfigMap above, and the copies of all three
		t.Fatalf("%d objects are kept, want at least those that are reflected", cachedBefore)
	}

	l.Quiet("what is not reflected", func() {
		l.Local.ConfigMaps(t, elsewhere, 2000)
		l.Remote.ConfigMaps(t, l.RemoteNS, 200)
	})
	// When the last ConfigMap has been reflected, the events of all earlier ConfigMaps have been handled, too.
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: last}, data: {a: b}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "last")
	l.Settled()
	if now := l.Manager.CachedObjects(); now != cachedBefore+2 {
		t.Errorf("%d objects are kept, %d before: want one more, and its copy", now, cachedBefore)
	}
	if looks := l.Evaluated() - evaluated; looks > 2 {
		t.Errorf("%d objects were evaluated, want the one that is reflected", looks)
	}
	l.Stop()
	l.watchedOnce(l.Local, l.Namespace, second)
	l.watchedOnce(l.Remote, extensions[l.Namespace], extensions[second])
}

// watchedOnce checks that the manager has requested each list only once and has never had two initial watches of the
// same objects open, that it has watched only the given namespaces, and that it has requested from the provider only
// objects with our labels. An API server may end a watch at any time. If it does so before it has sent all objects, the
// client requests an initial watch again. The manager must have ended before the call.
func (l *lab) watchedOnce(s *reflectiontest.Side, namespaces ...string) {
	l.Helper()
	watches := map[string][]reflectiontest.Request{}
	// The check is repeated, because a watch is logged only when the API server has noticed the end of the
	// connection.
	l.Eventually(func() error {
		clear(watches)
		for _, r := range s.Requests(l.T) {
			at := reflectiontest.Must(url.Parse(r.RequestURI))(l.T)
			selects := at.Query().Get("labelSelector") + at.Query().Get("fieldSelector")
			where := r.ObjectRef.Namespace
			switch {
			case r.Verb != "list" && r.Verb != "watch", where == l.Tenant:
				continue
			case r.Received.IsZero() || r.Ended.Before(r.Received):
				l.Fatalf("the audit log of %s lacks the times of %s %s", s.Cluster.Name(), r.Verb, r.RequestURI)
			case where != "" && !slices.Contains(namespaces, where):
				l.Fatalf("%s was asked for %s %s", s.Cluster.Name(), r.Verb, r.RequestURI)
			case where == "" && slices.Contains([]string{"configmaps", "secrets", "services", "endpointslices", "ingresses", "events", "networkpolicies", "poddisruptionbudgets"}, r.ObjectRef.Resource):
				l.Fatalf("%s was asked for those of all namespaces: %s", s.Cluster.Name(), r.RequestURI)
			case s == l.Remote && r.ObjectRef.Resource != "events" && !strings.Contains(selects, "offloading.liqo.io/origin=rome"):
				l.Fatalf("the provider was asked for what is not ours: %s", r.RequestURI)
			}
			if at.Query().Get("sendInitialEvents") == "true" || r.Verb == "list" && at.Query().Get("limit") != "1" {
				watch := where + "/" + r.ObjectRef.Resource + "?" + selects
				watches[watch] = append(watches[watch], r)
			}
		}
		for _, namespace := range namespaces {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(watches)), func(w string) bool { return strings.HasPrefix(w, namespace+"/configmaps") }) {
				return fmt.Errorf("no watch of the ConfigMaps of %s is logged, but %v", namespace, watches)
			}
		}
		if s == l.Local && len(watches) > 0 && len(watches["/nodes?liqo.io/remote-cluster-id"]) == 0 {
			return fmt.Errorf("no watch of nodes is logged, but %v", watches)
		}
		return nil
	})
	for watch, requests := range watches {
		slices.SortFunc(requests, func(a, b reflectiontest.Request) int { return a.Received.Compare(b.Received) })
		for i, r := range requests[1:] {
			if earlier := requests[i]; r.Verb == "list" || earlier.Verb == "list" || r.Received.Before(earlier.Ended) {
				l.Errorf("%s was asked %d times for %s: from %s to %s, and again from %s", s.Cluster.Name(), len(requests), watch, earlier.Received, earlier.Ended, r.Received)
			}
		}
	}
}

// TestEmptyKindsAreNotWatchedOnTheProvider checks that a kind is not watched on the provider while there are neither
// local objects in the namespace nor copies on the provider, or while another virtual kubelet of the provider
// reflects the kind.
func TestEmptyKindsAreNotWatchedOnTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.ServiceKind, reflection.IngressKind, reflection.ConfigMapKind)
	})
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: orphan, labels: {%s}}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`, l.Owned()))
	l.Start()
	// The object of this copy was deleted while no virtual kubelet was running, so the copy must be deleted although
	// the namespace has no objects of the kind.
	l.Absent(l.Remote, "Ingress", l.RemoteNS, "orphan")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: first}, data: {a: b}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "first")
	l.Remote.PatchYAML(t, "ConfigMap", l.RemoteNS, "first", `{data: {a: hacked}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "first", reflectiontest.Field("data.a", "b"))

	l.Manager.SetLeading(false)
	if n := l.Manager.CachedObjects(); n != 1 {
		t.Errorf("%d objects are kept by who reflects none of them, want the VirtualNode", n)
	}
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: later}, spec: {ports: [{port: 80}]}}`)
	l.Local.Delete(t, "ConfigMap", l.Namespace, "first")
	l.Settled()
	if l.Remote.Get(t, "Service", l.RemoteNS, "later") != nil || l.Remote.Get(t, "ConfigMap", l.RemoteNS, "first") == nil {
		t.Error("who does not lead has changed something")
	}
	l.Stop()
	watched := func(resource string) bool {
		return slices.ContainsFunc(l.Remote.Requests(t), func(r reflectiontest.Request) bool { return r.Verb == "watch" && r.ObjectRef.Resource == resource })
	}
	l.Eventually(func() error {
		if !watched("configmaps") || !watched("ingresses") {
			return errors.New("no watch of ConfigMaps or Ingresses is logged")
		}
		return nil
	})
	if watched("services") {
		t.Error("Services were watched on the provider, and there is none")
	}

	l.StartUnready()
	l.Present(l.Remote, "Service", l.RemoteNS, "later")
	l.Absent(l.Remote, "ConfigMap", l.RemoteNS, "first")
}
