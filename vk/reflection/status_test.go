// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	balanced = `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}}`
	ingress  = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {kubernetes.io/ingress.class: nginx}}
spec:
  rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]`
	served = `{status: {loadBalancer: {ingress: [{ip: 192.0.2.7}, {hostname: lb.example.com}]}}}`
)

func statuses(t *testing.T) func(*Options) {
	defaults := withDefaultPlugins(t)
	return func(o *Options) {
		defaults(o)
		o.Kinds = kinds(ServiceKind, IngressKind)
	}
}

// Where the provider serves a Service or an Ingress is shown here, by one write, and taken back when it ends.
func TestLoadBalancersComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.local.create(t, l.namespace, balanced)
	l.local.create(t, l.namespace, ingress)
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.present(l.remote, "Ingress", l.remoteNS, "web", field("spec.ingressClassName", ""), field("metadata.annotations/kubernetes.io/ingress.class", ""))
	for _, kind := range []string{"Service", "Ingress"} {
		l.settled()
		before := len(l.local.writes(t))
		l.remote.patchYAML(t, kind, l.remoteNS, "web", served, "status")
		l.present(l.local, kind, l.namespace, "web", field("metadata.annotations/"+engine.StatusFromAnnotation, l.id), addresses("192.0.2.7", "lb.example.com"))
		l.settled()
		if made := l.local.writes(t)[before:]; len(made) != 1 {
			t.Errorf("the status of a %s took the writes %q", kind, made)
		}
	}
	// The provider's says VIP, the default: no address that it names takes over traffic here.
	for s, want := range map[*side]string{l.remote: "VIP", l.local: "Proxy"} {
		namespace := map[*side]string{l.remote: l.remoteNS, l.local: l.namespace}[s]
		list, _, _ := unstructured.NestedSlice(s.get(t, "Service", namespace, "web").Object, "status", "loadBalancer", "ingress")
		if address, _ := list[0].(map[string]any); address["ipMode"] != want {
			t.Errorf("the address is %v, want it of mode %s", address, want)
		}
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.remote.patchYAML(t, "Service", l.remoteNS, "web", `{status: {loadBalancer: {ingress: null}}}`, "status")
	l.present(l.local, "Service", l.namespace, "web", addresses())
	// An address of a copy that goes is an address of nothing.
	l.local.patchYAML(t, "Ingress", l.namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.absent(l.remote, "Ingress", l.remoteNS, "web")
	l.present(l.local, "Ingress", l.namespace, "web", addresses(), field("metadata.annotations/"+engine.StatusFromAnnotation, ""))
}

// A status that a controller here, or another provider, has written is not touched; that of a provider which nobody here
// knows any more is.
func TestStatusOfAnotherStays(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.local.create(t, l.namespace, balanced)
	l.local.patchYAML(t, "Service", l.namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.settled()
	l.quiet("a provider's load balancer, where there is one here,", func() {
		l.remote.patchYAML(t, "Service", l.remoteNS, "web", served, "status")
	})
	l.local.patchYAML(t, "Service", l.namespace, "web", `{metadata: {annotations: {plugins.refract.io/status-from: gone}}}`)
	l.present(l.local, "Service", l.namespace, "web", field("metadata.annotations/"+engine.StatusFromAnnotation, l.id), addresses("192.0.2.7", "lb.example.com"))
	l.settled()
	if copied := l.remote.get(t, "Service", l.remoteNS, "web"); raw.Annotations(copied.Object)[engine.StatusFromAnnotation] != nil {
		t.Error("the annotation of the status crossed")
	}
}

// A controller of this cluster writes a status that is shown from the provider. It has the word from then on, which is said
// once; nobody overwrites anybody, whatever either side does next.
func TestALocalControllersStatusWins(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.local.create(t, l.namespace, balanced)
	l.local.create(t, l.namespace, ingress)
	l.start()
	for _, kind := range []string{"Service", "Ingress"} {
		l.present(l.remote, kind, l.remoteNS, "web")
		l.remote.patchYAML(t, kind, l.remoteNS, "web", served, "status")
		l.present(l.local, kind, l.namespace, "web", addresses("192.0.2.7", "lb.example.com"))
		l.settled()
		l.local.patchYAML(t, kind, l.namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
		l.event(l.namespace, kind, "web", engine.StatusOverruledReason, "remove the annotation "+engine.StatusFromAnnotation)
		l.settled()
		l.quiet("the provider's status of a "+kind, func() {
			l.remote.patchYAML(t, kind, l.remoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
		})
		l.local.patchYAML(t, kind, l.namespace, "web", `{status: {loadBalancer: {ingress: null}}}`, "status")
		l.settled()
		l.present(l.local, kind, l.namespace, "web", addresses(), field("metadata.annotations/"+engine.StatusFromAnnotation, "rome"), field("metadata.annotations/"+engine.StatusHashAnnotation, ""))
		if copied := l.remote.get(t, kind, l.remoteNS, "web"); raw.Annotations(copied.Object)[engine.StatusFromAnnotation] != nil || raw.Annotations(copied.Object)[engine.StatusHashAnnotation] != nil {
			t.Error("annotations of the status crossed")
		}
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.local.patchYAML(t, "Service", l.namespace, "web", `{metadata: {annotations: {plugins.refract.io/status-from: null}}}`)
	l.present(l.local, "Service", l.namespace, "web", addresses("192.0.2.8"))
}

// Without statuses of the provider none is shown, and what was shown is taken back.
func TestWithoutStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.local.create(t, l.namespace, balanced)
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.remote.patchYAML(t, "Service", l.remoteNS, "web", served, "status")
	l.present(l.local, "Service", l.namespace, "web", addresses("192.0.2.7", "lb.example.com"))
	l.settled()
	l.stop()
	l.options.WithoutStatus = []string{ServiceKind}
	l.start()
	l.present(l.local, "Service", l.namespace, "web", addresses(), field("metadata.annotations/"+engine.StatusFromAnnotation, ""), field("metadata.annotations/"+engine.StatusHashAnnotation, ""))
	l.settled()
	l.quiet("the provider's status", func() {
		l.remote.patchYAML(t, "Service", l.remoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
	})
}

// The classes that the VirtualNode names hold for what is there already, as far as Kubernetes lets them change, and for what
// comes; the default one counts, or else the first.
func TestClassesOfTheVirtualNodeAreFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t), func(o *Options) { o.Classes.Ingress = "public" })
	l.local.create(t, l.namespace, ingress)
	l.local.create(t, l.namespace, balanced)
	l.start()
	l.present(l.remote, "Ingress", l.remoteNS, "web", field("spec.ingressClassName", "public"))
	l.present(l.remote, "Service", l.remoteNS, "web", field("spec.loadBalancerClass", ""))
	classes := func(text string) { l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, "{spec: {"+text+"}}") }
	classes(`ingressClasses: [{ingressClassName: nginx}, {ingressClassName: traefik}], loadBalancerClasses: [{loadBalancerClassName: example.com/a}, {loadBalancerClassName: example.com/b, default: true}]`)
	l.present(l.remote, "Ingress", l.remoteNS, "web", field("spec.ingressClassName", "nginx"))
	// The class of a Service is for ever: it is told how to change it, and everything else goes on crossing.
	l.event(l.namespace, "Service", "web", "Warning", "FailedReflection", "spec.loadBalancerClass", "delete", l.remoteNS+"/web")
	l.local.patchYAML(t, "Service", l.namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.present(l.remote, "Service", l.remoteNS, "web", field("spec.sessionAffinity", "ClientIP"), field("spec.loadBalancerClass", ""))
	l.settled()
	l.quiet("another look", func() { l.manager.EnqueueAll(ServiceKind) })
	l.remote.delete(t, "Service", l.remoteNS, "web")
	l.present(l.remote, "Service", l.remoteNS, "web", field("spec.loadBalancerClass", "example.com/b"))

	classes(`ingressClasses: [{ingressClassName: nginx}, {ingressClassName: traefik, default: true}]`)
	l.present(l.remote, "Ingress", l.remoteNS, "web", field("spec.ingressClassName", "traefik"))
	classes(`ingressClasses: null`)
	l.present(l.remote, "Ingress", l.remoteNS, "web", field("spec.ingressClassName", "public"))
}

// Without IP reflection nobody learns the other side's addresses: slices stay here, pods show none; all else is as usual.
func TestWithoutIPReflection(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t), func(o *Options) { o.DisableIPReflection = true })
	l.start()
	l.local.create(t, l.namespace, service("web", ""))
	l.local.create(t, l.namespace, slice("web-x", "web", "10.1.2.3"))
	l.pod("web")
	l.runRemote("web", running(2))
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), restarts(2), field("status.podIP", ""), field("status.podIPs", ""), field("status.hostIP", "10.9.8.7"))
	l.settled()
	if l.remote.get(t, "ShadowEndpointSlice", l.remoteNS, "web-x") != nil {
		t.Error("an EndpointSlice crossed")
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })
}
