// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/objects"
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

// TestLoadBalancersComeBack checks that the load balancer addresses of a Service or Ingress on the provider are
// written to the local object with one write, and removed when reflection ends.
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
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID), reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
		l.Settled()
		if made := l.Local.Writes(t)[before:]; len(made) != 1 {
			t.Errorf("the status of a %s took the writes %q", kind, made)
		}
	}
	// The provider's status has the default mode, VIP, with which an address could redirect traffic inside this
	// cluster. In this cluster, the mode must be Proxy.
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
	// The status must be removed together with its copy.
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.Absent(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses(), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, ""))
}

// TestStatusOfAnotherStays checks that a status from a local controller or from another provider is not changed, and
// that a status from a provider that is no longer known to this cluster is replaced.
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
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID), reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Settled()
	if copied := l.Remote.Get(t, "Service", l.RemoteNS, "web"); raw.Annotations(copied.Object)[objects.StatusFromAnnotation] != nil {
		t.Error("the annotation of the status crossed")
	}
}

// TestALocalControllersStatusWins checks that if a local controller writes a status that came from the provider, the
// controller becomes the owner of the status, with a single Event. From then on, neither of the two may overwrite the
// other's status.
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
		l.Event(l.Namespace, kind, "web", objects.StatusOverruledReason, "field manager", "use a class that no controller of this cluster serves")
		l.Settled()
		l.Quiet("the provider's status of a "+kind, func() {
			l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
		})
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("198.51.100.1"), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, "rome"))
		if copied := l.Remote.Get(t, kind, l.RemoteNS, "web"); raw.Annotations(copied.Object)[objects.StatusFromAnnotation] != nil || raw.Annotations(copied.Object)[objects.StatusHashAnnotation] != nil {
			t.Error("annotations of the status crossed")
		}
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	for _, kind := range []string{"Service", "Ingress"} {
		// The controller no longer serves the object. The provider must become the owner of the status again without
		// any action by a user.
		l.Local.PatchYAML(t, kind, l.Namespace, "web", `{status: {loadBalancer: {ingress: null}}}`, "status")
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("192.0.2.8"), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID))
	}
}

// TestAnotherClassEndsALocalClaim checks that a local controller that has written the status of an Ingress no longer
// owns the status after the class of the Ingress has changed.
func TestAnotherClassEndsALocalClaim(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}}`, "status")
	l.Event(l.Namespace, "Ingress", "web", objects.StatusOverruledReason)
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {labels: {a: b}}}`)
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/a", "b"))
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("198.51.100.1"))
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {kubernetes.io/ingress.class: far}}}`)
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
}

// TestAnAddressComesBackWithTheType checks that a status has no owner after the API server has cleared it because a
// Service is no longer a load balancer. The provider's address is shown again when the Service is a load balancer
// again.
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
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.9"), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID))
	for _, event := range l.Events(l.Namespace, "Service", "web") {
		t.Errorf("the Event %q", event)
	}
	// An earlier version of the virtual kubelet has recorded a local controller as the owner without a hash. Because
	// the status is empty, the record must be ignored.
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {plugins.refract.io/status-from: rome, plugins.refract.io/status-hash: null}}, status: {loadBalancer: {ingress: null}}}`, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.9"), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID))
}

// TestOwnStatusIsNoClaim checks that a status from a virtual kubelet does not count as the status of another
// controller. This must also hold if a client has removed the annotations, and if the API server has stored the
// status in a different form than the hashed one.
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
		l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses(address), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, l.ID))
	}
	for _, event := range l.Events(l.Namespace, "Ingress", "web") {
		t.Errorf("the Event %q", event)
	}
}

// TestWithoutStatus checks that with the option WithoutStatus, the provider's status is not shown, and a status that
// was shown before is removed.
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
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses(), reflectiontest.Field("metadata.annotations/"+objects.StatusFromAnnotation, ""), reflectiontest.Field("metadata.annotations/"+objects.StatusHashAnnotation, ""))
	l.Settled()
	l.Quiet("the provider's status", func() {
		l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", `{status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}}`, "status")
	})
}

// TestClassesOfTheVirtualNodeAreFollowed checks that changed classes in the VirtualNode apply to new objects and, as
// far as Kubernetes permits, to existing ones. The default class must be used, or the first class if none is the
// default.
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
	// The class of a Service is immutable. An Event must describe how to change it, and all other fields must still
	// be reflected.
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

// TestWithoutIPReflection checks that without IP reflection, neither side gets addresses of the other: slices are not
// reflected, pods show no addresses, and all other objects are reflected as usual.
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
