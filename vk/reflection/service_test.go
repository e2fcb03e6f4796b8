// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func service(name, annotations string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, labels: {app: %s}, annotations: {%s}}
spec: {selector: {app: %s}, ports: [{name: http, port: 80, targetPort: 8080}]}`, name, name, annotations, name)
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 50 {
		l.Local.Create(t, l.Namespace, service(fmt.Sprintf("web-%d", i), ""))
		l.Local.Create(t, l.Namespace, slice(fmt.Sprintf("web-%d-x", i), fmt.Sprintf("web-%d", i), "10.1.2.3"))
	}
	l.Start()
	for i := range 50 {
		l.Present(l.Remote, "Service", l.RemoteNS, fmt.Sprintf("web-%d", i))
		l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, fmt.Sprintf("web-%d-x", i))
	}
	l.Quiet("an idle manager", func() {})
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Stop()
	l.StartUnready()
	began := time.Now()
	l.Local.Create(t, l.Namespace, service("first", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "first")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the first new object after a restart took %s", took)
	}
	l.Settled()
	l.Quiet("changing what does not cross", func() {
		l.Local.PatchYAML(t, "Service", l.Namespace, "web-1", `{metadata: {finalizers: [example.com/hold]}}`)
		l.Local.PatchYAML(t, "Service", l.Namespace, "web-1", `{metadata: {finalizers: null}}`)
	})
	before := len(l.Remote.Writes(t))
	l.Local.PatchYAML(t, "Service", l.Namespace, "web-1", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web-1", reflectiontest.Field("spec.sessionAffinity", "ClientIP"))
	l.Settled()
	if made := l.Remote.Writes(t)[before:]; len(made) != 1 {
		t.Errorf("one change of a Service made the writes %q, want one", made)
	}
	if events := l.Events(l.Namespace, "Service", "web-1"); len(events) > 0 {
		t.Errorf("a Service that crossed without trouble has the Events %q", events)
	}
}

func TestTheAPIServersOwnServiceStays(t *testing.T) {
	// The test is not parallel, because all tests share the default namespace.
	l := newLab(t)
	l.Admit("default")
	l.MapNamespaces(map[string]string{"default": l.RemoteNS})
	l.Start()
	l.Local.Create(t, "default", service("canary", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "canary")
	l.Settled()
	l.Local.Delete(t, "Service", "default", "canary")
	if l.Remote.Get(t, "Service", l.RemoteNS, "kubernetes") != nil {
		t.Error("default/kubernetes crossed")
	}
}

func TestOffloadingPatchIsFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Chains.Swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		patch, _ := env.Context["offloadingPatch"].(map[string]any)
		keys, _ := patch["labelsNotReflected"].([]any)
		for _, key := range keys {
			if _, err := doc.Remove("metadata.labels." + key.(string)); err != nil {
				return nil, err
			}
		}
		return reflectiontest.MutateService(doc, env)
	})
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {labels: {tier: gold, zone: eu}}}`)
	l.Eventually(func() error { // Kubernetes copies the labels of the Service to its EndpointSlice after a moment.
		slices, err := l.Local.Of("EndpointSlice", l.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web,tier=gold,zone=eu"})
		if err == nil && len(slices.Items) == 0 {
			err = errors.New("the EndpointSlice does not have the labels yet")
		}
		return err
	})
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/app", "web"), reflectiontest.Field("metadata.labels/tier", "gold"))
	l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, `{spec: {offloadingPatch: {labelsNotReflected: [app]}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/app", ""))
	l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, `{status: {effectiveOffloadingPatch: {labelsNotReflected: [tier], nodeSelector: {disk: ssd}}}}`, "status")
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", ""), reflectiontest.Field("metadata.labels/app", ""), reflectiontest.Field("metadata.labels/zone", "eu"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart with a patch", func() { l.Start() })
	l.Quiet("a change of the VirtualNode that is none of ours", func() {
		l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, `{metadata: {labels: {colour: blue}}}`)
	})
}

func TestFollower(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.StartUnready()
	l.Manager.SetLeading(false)
	l.Eventually(func() error {
		if !l.Manager.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	l.Settled()
	l.Manager.SetLeading(true)
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
}

// TestRefusedCopy checks that a copy that the provider rejects causes one Event and is retried.
func TestRefusedCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	mutateTo := func(serviceType string) {
		l.Chains.Swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
			if err := doc.SetString("spec.type", serviceType); err != nil {
				return nil, err
			}
			return reflectiontest.MutateService(doc, env)
		})
	}
	mutateTo("Nonsense")
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	l.Event(l.Namespace, "Service", "web", "Warning", "FailedReflection", "Nonsense")
	tries := l.Evaluated() + 3
	l.Eventually(func() error {
		if n := l.Evaluated(); n < tries {
			return fmt.Errorf("%d evaluations, want %d", n, tries)
		}
		return nil
	})
	// Events are written in order: once the Event about this rejection exists, all Events about the first one have been
	// written.
	mutateTo("Gibberish")
	l.Event(l.Namespace, "Service", "web", "Warning", "FailedReflection", "Gibberish")
	first := slices.DeleteFunc(l.Events(l.Namespace, "Service", "web"), func(text string) bool { return !strings.Contains(text, "Nonsense") })
	if len(first) != 1 || !strings.Contains(first[0], " x1: ") {
		t.Errorf("one refusal made the Events %q", first)
	}
	l.Chains.Swap("Service", host.Outgoing, reflectiontest.MutateService)
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
}

// TestFurtherKind checks that another kind is reflected as soon as its name, resource, policy and number of workers are
// given.
func TestFurtherKind(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) {
		o.Kinds = append(reflection.DefaultKinds(), reflection.Kind{Name: "Lease.coordination.k8s.io", Source: reflectiontest.Resources["Lease"], Policy: reflection.DenyList, Workers: 1})
	})
	l.Allow("coordination.k8s.io", "leases")
	l.Local.Create(t, l.Namespace, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: lock}, spec: {holderIdentity: me, leaseDurationSeconds: 7}}`)
	l.Start()
	l.Present(l.Remote, "Lease", l.RemoteNS, "lock", reflectiontest.Field("spec.holderIdentity", "me"), reflectiontest.Field("metadata.labels/offloading.liqo.io/origin", "rome"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
