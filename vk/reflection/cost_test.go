// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// configMaps creates many, several at a time.
func (s *side) configMaps(t *testing.T, namespace string, number int) {
	t.Helper()
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		wg.Go(func() {
			for n := range numbers {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("good-%d", n)}, Data: map[string]string{"mode": "fast"}}
				if _, err := s.core.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range number {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
}

// 10,000 ConfigMaps in namespaces that are not extended, and those of others in the remote namespace, are not asked for, not kept and
// not looked at. What is asked of the API servers is one watch per kind and extended namespace, one per kind of what
// belongs to no namespace, and of the provider what bears our labels.
func TestWhatIsNotReflectedCostsNothing(t *testing.T) {
	// Not parallel: creating all of that leaves the API servers no time for others.
	l := newLab(t, withDefaultPlugins(t), func(o *Options) { o.Kinds, o.FollowIPs, o.Storage.Enabled = nil, true, true })
	l.defineIPs()
	elsewhere, second, extensions := l.namespace+"-full", l.namespace+"-second", map[string]string{l.namespace: l.remoteNS}
	for _, name := range []string{elsewhere, second} {
		l.local.createNamespace(t, name)
	}
	l.admit(second)
	extensions[second] = l.anotherNamespace()
	l.mapNamespaces(extensions)
	l.start()
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: ours}, data: {a: b}}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "ours")
	l.settled()
	cachedBefore, evaluated := l.manager.CachedObjects(), l.evaluated()
	if cachedBefore < 6 { // two root CAs, the one above, and the copies of all three
		t.Fatalf("%d objects are kept, want at least those that are reflected", cachedBefore)
	}

	l.quiet("what is not reflected", func() {
		l.local.configMaps(t, elsewhere, 10000)
		l.remote.configMaps(t, l.remoteNS, 200)
	})
	// What came after all of that has been seen: so would have been what came before.
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: last}, data: {a: b}}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "last")
	l.settled()
	if now := l.manager.CachedObjects(); now != cachedBefore+2 {
		t.Errorf("%d objects are kept, %d before: want one more, and its copy", now, cachedBefore)
	}
	if looks := l.evaluated() - evaluated; looks > 2 {
		t.Errorf("%d objects were evaluated, want the one that is reflected", looks)
	}
	l.stop()
	l.watchedOnce(l.local, l.namespace, second)
	l.watchedOnce(l.remote, extensions[l.namespace], extensions[second])
}

// watchedOnce checks what the manager has listed and watched, after its end.
func (l *lab) watchedOnce(s *side, namespaces ...string) {
	l.Helper()
	watches := map[string]int{}
	l.eventually(func() error { // they are logged when the API server has noticed that they ended
		clear(watches)
		for _, r := range s.requests(l.T) {
			at := must(url.Parse(r.RequestURI))(l.T)
			selects := at.Query().Get("labelSelector") + at.Query().Get("fieldSelector")
			where := r.ObjectRef.Namespace
			switch {
			case r.Verb != "list" && r.Verb != "watch", where == l.tenant:
				continue
			case where != "" && !slices.Contains(namespaces, where):
				l.Fatalf("%s was asked for %s %s", s.cluster.Name(), r.Verb, r.RequestURI)
			case where == "" && slices.Contains([]string{"configmaps", "secrets", "services", "endpointslices", "ingresses", "events"}, r.ObjectRef.Resource):
				l.Fatalf("%s was asked for those of all namespaces: %s", s.cluster.Name(), r.RequestURI)
			case s == l.remote && r.ObjectRef.Resource != "events" && !strings.Contains(selects, "offloading.liqo.io/origin=rome"):
				l.Fatalf("the provider was asked for what is not ours: %s", r.RequestURI)
			}
			// An API server ends watches when it likes, and they go on: what counts is how often one begins.
			if at.Query().Get("sendInitialEvents") == "true" || r.Verb == "list" && at.Query().Get("limit") != "1" {
				watches[where+"/"+r.ObjectRef.Resource+"?"+selects]++
			}
		}
		for _, namespace := range namespaces {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(watches)), func(w string) bool { return strings.HasPrefix(w, namespace+"/configmaps") }) {
				return fmt.Errorf("no watch of the ConfigMaps of %s is logged, but %v", namespace, watches)
			}
		}
		if s == l.local && len(watches) > 0 && watches["/nodes?liqo.io/remote-cluster-id"] == 0 {
			return fmt.Errorf("no watch of nodes is logged, but %v", watches)
		}
		return nil
	})
	for watch, n := range watches {
		if n > 1 {
			l.Errorf("%s was asked %d times to watch %s", s.cluster.Name(), n, watch)
		}
	}
}

// What a namespace has no objects of is not watched on the provider, which may have no copies of it either; nor is anything that
// another virtual kubelet of the provider reflects.
func TestEmptyKindsAreNotWatchedOnTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t), func(o *Options) { o.Kinds = kinds(ServiceKind, IngressKind, ConfigMapKind) })
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: orphan, labels: {%s}}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`, l.owned()))
	l.start()
	l.absent(l.remote, "Ingress", l.remoteNS, "orphan") // whose object was deleted while nobody was looking
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: first}, data: {a: b}}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "first")
	l.remote.patchYAML(t, "ConfigMap", l.remoteNS, "first", `{data: {a: hacked}}`)
	l.present(l.remote, "ConfigMap", l.remoteNS, "first", field("data.a", "b"))

	l.manager.SetLeading(false)
	if n := l.manager.CachedObjects(); n != 1 {
		t.Errorf("%d objects are kept by who reflects none of them, want the VirtualNode", n)
	}
	l.local.create(t, l.namespace, `{apiVersion: v1, kind: Service, metadata: {name: later}, spec: {ports: [{port: 80}]}}`)
	l.local.delete(t, "ConfigMap", l.namespace, "first")
	l.settled()
	if l.remote.get(t, "Service", l.remoteNS, "later") != nil || l.remote.get(t, "ConfigMap", l.remoteNS, "first") == nil {
		t.Error("who does not lead has changed something")
	}
	l.stop()
	watched := func(resource string) bool {
		return slices.ContainsFunc(l.remote.requests(t), func(r request) bool { return r.Verb == "watch" && r.ObjectRef.Resource == resource })
	}
	l.eventually(func() error {
		if !watched("configmaps") || !watched("ingresses") {
			return errors.New("no watch of ConfigMaps or Ingresses is logged")
		}
		return nil
	})
	if watched("services") {
		t.Error("Services were watched on the provider, and there is none")
	}

	l.startUnready()
	l.present(l.remote, "Service", l.remoteNS, "later")
	l.absent(l.remote, "ConfigMap", l.remoteNS, "first")
}
