// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

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

func statuses(t *testing.T) func(*reflection.Options) {
	defaults := reflectiontest.WithDefaultPlugins(t)
	return func(o *reflection.Options) {
		defaults(o)
		o.Kinds = reflectiontest.Kinds(reflection.ServiceKind, reflection.IngressKind)
	}
}

// Where the provider serves a Service or an Ingress is shown here, by one write, and taken back when it ends.
func TestLoadBalancersComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("spec.ingressClassName", ""), reflectiontest.Field("metadata.annotations/kubernetes.io/ingress.class", ""))
	for _, kind := range []string{"Service", "Ingress"} {
		l.Settled()
		before := len(l.Local.Writes(t))
		l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", served, "status")
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID), reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
		l.Settled()
		if made := l.Local.Writes(t)[before:]; len(made) != 1 {
			t.Errorf("the status of a %s took the writes %q", kind, made)
		}
	}
	// The provider's says VIP, the default: no address that it names takes over traffic here.
	for s, want := range map[*reflectiontest.Side]string{l.Remote: "VIP", l.Local: "Proxy"} {
		namespace := map[*reflectiontest.Side]string{l.Remote: l.RemoteNS, l.Local: l.Namespace}[s]
		list, _, _ := unstructured.NestedSlice(s.Get(t, "Service", namespace, "web").Object, "status", "loadBalancer", "ingress")
		if address, _ := list[0].(map[string]any); address["ipMode"] != want {
			t.Errorf("the address is %v, want it of mode %s", address, want)
		}
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", `{status: {loadBalancer: {ingress: null}}}`, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses())
	// An address of a copy that goes is an address of nothing.
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.Absent(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses(), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, ""))
}

// A status that a controller here, or another provider, has written is not touched; that of a provider which nobody here
// knows any more is.
func TestStatusOfAnotherStays(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Settled()
	l.Quiet("a provider's load balancer, where there is one here,", func() {
		l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	})
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {plugins.refract.io/status-from: gone}}}`)
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID), reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Settled()
	if copied := l.Remote.Get(t, "Service", l.RemoteNS, "web"); raw.Annotations(copied.Object)[engine.StatusFromAnnotation] != nil {
		t.Error("the annotation of the status crossed")
	}
}

// A controller of this cluster writes a status that is shown from the provider. It owns the status from then on, which is said
// once; nobody overwrites anybody, whatever either side does next.
func TestALocalControllersStatusWins(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	for _, kind := range []string{"Service", "Ingress"} {
		l.Present(l.Remote, kind, l.RemoteNS, "web")
		l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", served, "status")
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
		l.Settled()
		l.Local.PatchYAML(t, kind, l.Namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
		l.Event(l.Namespace, kind, "web", engine.StatusOverruledReason, "field manager", "use a class that no controller of this cluster serves")
		l.Settled()
		l.Quiet("the provider's status of a "+kind, func() {
			l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
		})
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("198.51.100.1"), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, "rome"))
		if copied := l.Remote.Get(t, kind, l.RemoteNS, "web"); raw.Annotations(copied.Object)[engine.StatusFromAnnotation] != nil || raw.Annotations(copied.Object)[engine.StatusHashAnnotation] != nil {
			t.Error("annotations of the status crossed")
		}
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	for _, kind := range []string{"Service", "Ingress"} {
		// It does not serve the object any more, so the status is the provider's again, without anybody's help.
		l.Local.PatchYAML(t, kind, l.Namespace, "web", `{status: {loadBalancer: {ingress: null}}}`, "status")
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("192.0.2.8"), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID))
	}
}

// A controller that wrote the status of an Ingress is not responsible any more once the Ingress has another class.
func TestAnotherClassEndsALocalClaim(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
	l.Event(l.Namespace, "Ingress", "web", engine.StatusOverruledReason)
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {labels: {a: b}}}`)
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/a", "b"))
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("198.51.100.1"))
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {kubernetes.io/ingress.class: far}}}`)
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
}

// The API server clears the status of a Service that is no load balancer any more. It is nobody's claim: the address of the provider is shown
// once there is a load balancer again.
func TestAnAddressComesBackWithTheType(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {type: ClusterIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.type", "ClusterIP"), reflectiontest.Addresses())
	l.Settled()
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {type: LoadBalancer}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.type", "LoadBalancer"))
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.9}]}}}`, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.9"), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID))
	for _, event := range l.Events(l.Namespace, "Service", "web") {
		t.Errorf("the Event %q", event)
	}
	// An owner for good that an earlier version has recorded, without a claim.
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {plugins.refract.io/status-from: rome, plugins.refract.io/status-hash: null}}, status: {loadBalancer: {ingress: null}}}`, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.9"), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID))
}

// What a virtual kubelet wrote is no claim of another controller, even if a client has removed its annotations, or an API server stores
// the status in another form than the one that was hashed.
func TestOwnStatusIsNoClaim(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	for i, lost := range []string{`status-from: null, plugins.refract.io/status-hash: null`, `status-hash: "1"`} {
		l.Settled()
		l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {plugins.refract.io/`+lost+`}}}`)
		address := fmt.Sprintf("192.0.2.%d", 20+i)
		l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: `+address+`}]}}}`, "status")
		l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses(address), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, l.ID))
	}
	for _, event := range l.Events(l.Namespace, "Ingress", "web") {
		t.Errorf("the Event %q", event)
	}
}

// Without statuses of the provider none is shown, and what was shown is taken back.
func TestWithoutStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Settled()
	l.Stop()
	l.Options.WithoutStatus = []string{reflection.ServiceKind}
	l.Start()
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses(), reflectiontest.Field("metadata.annotations/"+engine.StatusFromAnnotation, ""), reflectiontest.Field("metadata.annotations/"+engine.StatusHashAnnotation, ""))
	l.Settled()
	l.Quiet("the provider's status", func() {
		l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
	})
}

// The classes that the VirtualNode names hold for what is there already, as far as Kubernetes lets them change, and for what
// comes; the default one counts, or else the first.
func TestClassesOfTheVirtualNodeAreFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t), func(o *reflection.Options) { o.Classes.Ingress = "public" })
	l.Local.Create(t, l.Namespace, ingress)
	l.Local.Create(t, l.Namespace, balanced)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("spec.ingressClassName", "public"))
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.loadBalancerClass", ""))
	classes := func(text string) { l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, "{spec: {"+text+"}}") }
	classes(`ingressClasses: [{ingressClassName: nginx}, {ingressClassName: traefik}], loadBalancerClasses: [{loadBalancerClassName: example.com/a}, {loadBalancerClassName: example.com/b, default: true}]`)
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("spec.ingressClassName", "nginx"))
	// The class of a Service is immutable: the Event says how to change it, and everything else is still reflected.
	l.Event(l.Namespace, "Service", "web", "Warning", "FailedReflection", "spec.loadBalancerClass", "delete", l.RemoteNS+"/web")
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.sessionAffinity", "ClientIP"), reflectiontest.Field("spec.loadBalancerClass", ""))
	l.Settled()
	l.Quiet("another look", func() { l.Manager.EnqueueAll(reflection.ServiceKind) })
	l.Remote.Delete(t, "Service", l.RemoteNS, "web")
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.loadBalancerClass", "example.com/b"))

	classes(`ingressClasses: [{ingressClassName: nginx}, {ingressClassName: traefik, default: true}]`)
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("spec.ingressClassName", "traefik"))
	classes(`ingressClasses: null`)
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("spec.ingressClassName", "public"))
}

// Without IP reflection nobody learns the other side's addresses: slices stay here, pods show none; all else is as usual.
func TestWithoutIPReflection(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) { o.DisableIPReflection = true })
	l.Start()
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, slice("web-x", "web", "10.1.2.3"))
	l.Pod("web")
	l.RunRemote("web", running(2))
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), restarts(2), reflectiontest.Field("status.podIP", ""), reflectiontest.Field("status.podIPs", ""), reflectiontest.Field("status.hostIP", "10.9.8.7"))
	l.Settled()
	if l.Remote.Get(t, "ShadowEndpointSlice", l.RemoteNS, "web-x") != nil {
		t.Error("an EndpointSlice crossed")
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
