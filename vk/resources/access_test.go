// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/vk/reflection"
)

// TestClosedRemoteNamespace checks that one namespace without permissions, in this cluster or on the provider, does
// not delay the other namespaces.
func TestClosedRemoteNamespace(t *testing.T) {
	l := newLab(t).start()
	l.both("second.example.org", "Namespaced")
	const name, kind = "widgets.second.example.org", "Widget.second.example.org"
	l.reflect(name, "{group: second.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	mail, closed := l.another("mail")
	l.engine.extend(map[string]string{l.shop: l.remoteNamespace, mail: closed})
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "this cluster (rome) does not let", "in namespace "+mail+".", "cluster milan does not let", "in namespace "+closed+".")
	l.install(l.local, l.kubelet.ExtendedNamespace(mail))
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "cluster milan does not let", "in namespace "+closed+".")
	if said := l.engine.heard(); !slices.Equal(said, []string{"start " + kind}) {
		t.Errorf("the engine heard %q", said)
	}
	l.install(l.remote, l.consumer.RemoteNamespace(closed))
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	l.engine.extend(nil)
	l.condition(name, pluginsv1alpha1.ReflectingReason, "as soon as a namespace is offloaded")
}

// TestOneQuestionPerNamespace checks that a hundred namespaces and ten resources cause only a hundred access reviews,
// and not thousands.
func TestOneQuestionPerNamespace(t *testing.T) {
	l := newLab(t)
	var asked atomic.Int32
	l.options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.HasPrefix(request.URL.Path, "/apis/authorization.k8s.io/") {
				asked.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	l.options.RetryFirst = time.Minute
	// The permission to watch CRDs is granted, because the review of a missing permission would be repeated and
	// counted.
	l.allow(l.remote, rbac.VirtualKubeletRemoteClusterwide().Named(l.consumer.Prefix),
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"list", "watch"}})
	l.start()
	l.both("asked.example.org", "Namespaced")
	remoteNamespaces := map[string]string{l.shop: l.remoteNamespace}
	for i := range 4 {
		local, remoteNamespace := l.another(fmt.Sprint(i))
		remoteNamespaces[local] = remoteNamespace
		l.install(l.local, l.kubelet.ExtendedNamespace(local))
		l.install(l.remote, l.consumer.RemoteNamespace(remoteNamespace))
	}
	l.eventually(func() error { // an authorizer does not apply the change at once
		for _, s := range []*side{must(newSide(l.options.Local, "rome", false, l.options.withDefaults()))(t), must(newSide(l.options.Remote, "milan", true, l.options.withDefaults()))(t)} {
			for local, remoteNamespace := range remoteNamespaces {
				if allowed, err := s.isAllowed(t.Context(), map[bool]string{false: local, true: remoteNamespace}[s.remote], "watch", "asked.example.org", "widgets"); err != nil || !allowed {
					return fmt.Errorf("%s is closed, %v", local, err)
				}
			}
		}
		return nil
	})
	for _, resource := range []string{"widgets", "gadgets", "wheels"} {
		if resource != "widgets" {
			for _, c := range []*cluster{l.local, l.remote} {
				l.define(c, strings.NewReplacer("kind: Widget", "kind: "+resource, "widgets", resource).Replace(widgets("asked.example.org", "Namespaced")))
			}
		}
		l.reflect(resource+".asked.example.org", "{group: asked.example.org, version: v1, resource: "+resource+"}")
	}
	for _, resource := range []string{"widgets", "gadgets", "wheels"} {
		l.condition(resource+".asked.example.org", pluginsv1alpha1.ReflectingReason)
	}
	looked := l.engine.timesAsked()
	asked.Store(0)
	l.engine.extend(remoteNamespaces)
	l.eventually(func() error {
		if now := l.engine.timesAsked(); now < looked+1+2*3 {
			return fmt.Errorf("the namespaces were asked for %d times", now-looked)
		}
		return nil
	})
	if n := asked.Load(); n != 4 {
		t.Errorf("the provider was asked %d times about 4 further namespaces", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestNoNamespaceIsOpenOnBothSides checks that nothing is reflected if every namespace lacks permissions on one side:
// one namespace in this cluster, and the other namespace on the provider.
func TestNoNamespaceIsOpenOnBothSides(t *testing.T) {
	l := newLab(t)
	mail, open := l.another("mail")
	bank, closed := l.another("bank")
	l.install(l.remote, l.consumer.RemoteNamespace(open))
	l.install(l.local, l.kubelet.ExtendedNamespace(bank))
	l.engine.remoteNamespaces = map[string]string{mail: open, bank: closed}
	l.start()
	l.both("doors.example.org", "Namespaced")
	const name = "widgets.doors.example.org"
	l.reflect(name, "{group: doors.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "in namespace "+mail+".", "in namespace "+closed+".")
	if said := l.engine.heard(); len(said) > 0 {
		t.Errorf("the engine heard %q", said)
	}
	l.install(l.local, l.kubelet.ExtendedNamespace(mail))
	l.reflecting("Widget.doors.example.org", func(reflection.Kind) bool { return true })
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "cluster milan does not let", "in namespace "+closed+".")
}

// TestRolesOfAnotherInstallation checks that the virtual kubelet waits if the installation grants no permissions for
// ReflectedResources, and logs this once.
func TestRolesOfAnotherInstallation(t *testing.T) {
	l := newLab(t)
	role := must(l.local.core.RbacV1().ClusterRoles().Get(t.Context(), rbac.VirtualKubeletLocal().Named(l.kubelet.Prefix), metav1.GetOptions{}))(t)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "reflectedresources") || slices.Contains(r.Resources, "reflectedresources/status")
	})
	must(l.local.core.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	l.eventually(func() error { // an authorizer does not apply the change at once
		review := must(newSide(l.options.Local, "rome", false, l.options.withDefaults()))(t)
		if allowed, err := review.isAllowed(t.Context(), "", "watch", "plugins.refract.io", "reflectedresources"); err != nil || allowed {
			return fmt.Errorf("the role still holds, %v", err)
		}
		return nil
	})
	said := &lines{}
	l.options.Log = slog.New(slog.NewTextHandler(said, nil))
	l.start()
	l.both("own.example.org", "Namespaced")
	const name = "widgets.own.example.org"
	l.reflect(name, "{group: own.example.org, version: v1, resource: widgets}")
	var advice string
	l.eventually(func() error {
		if advice = said.text(); !strings.Contains(advice, "let this virtual kubelet get, list, watch reflectedresources and patch reflectedresources/status. Add to ClusterRole") {
			return fmt.Errorf("the log has %q", advice)
		}
		return nil
	})
	l.allow(l.local, role.Name, rbacv1.PolicyRule{APIGroups: []string{"plugins.refract.io"}, Resources: []string{"reflectedresources", "reflectedresources/status"},
		Verbs: []string{"get", "list", "watch", "patch"}})
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	if n := strings.Count(said.text(), "ReflectedResources are not processed"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// lines is a log handler that collects the messages.
type lines struct {
	mu    sync.Mutex
	bytes []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, p...)
	return len(p), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.bytes)
}
