// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestLeadingComesAndGoes checks that nothing is written while another virtual node leads, and that all changes are
// reconciled when this virtual node leads again.
func TestLeadingComesAndGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"kept", "changed", "deleted"} {
		l.Local.Create(t, l.Namespace, service(name, ""))
	}
	l.Start()
	for _, name := range []string{"kept", "changed", "deleted"} {
		l.Present(l.Remote, "Service", l.RemoteNS, name)
	}
	l.Settled()
	l.Manager.SetLeading(false)
	l.Quiet("following", func() {
		l.Local.Delete(t, "Service", l.Namespace, "deleted")
		l.Local.Create(t, l.Namespace, service("new", ""))
		l.Local.PatchYAML(t, "Service", l.Namespace, "changed", `{spec: {sessionAffinity: ClientIP}}`)
		l.Remote.Delete(t, "Service", l.RemoteNS, "kept")
	})
	l.Pod("web") // this pod must be reflected, because every virtual kubelet reflects its own pods
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Manager.SetLeading(true)
	l.Absent(l.Remote, "Service", l.RemoteNS, "deleted")
	l.Present(l.Remote, "Service", l.RemoteNS, "new")
	l.Present(l.Remote, "Service", l.RemoteNS, "kept")
	l.Present(l.Remote, "Service", l.RemoteNS, "changed", reflectiontest.Field("spec.sessionAffinity", "ClientIP"))
}

// TestKindThatIsOff checks that objects of a kind without workers are not written on either side. If the kind is
// Service, the annotations of Services must still determine whether their slices are reflected.
func TestKindThatIsOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) {
		o.Workers = map[string]int{reflection.ServiceKind: 0, reflection.PodKind: 0}
	})
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: left, labels: {%s}}, spec: {ports: [{port: 1}]}}`, l.Owned()))
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(shadowPod, "left", l.OwnedPod()))
	l.Local.Create(t, l.Namespace, service("stays", `liqo.io/skip-reflection: "true"`))
	l.Local.Create(t, l.Namespace, slice("stays-x", "stays", "10.1.2.3"))
	l.Local.Create(t, l.Namespace, slice("goes-x", "goes", "10.1.2.3"))
	l.Pod("web")
	l.Start()
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "goes-x")
	l.Settled()
	l.Present(l.Remote, "Service", l.RemoteNS, "left")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "left")
	for kind, name := range map[string]string{"Service": "stays", "ShadowEndpointSlice": "stays-x", "ShadowPod": "web"} {
		if l.Remote.Get(t, kind, l.RemoteNS, name) != nil {
			t.Errorf("%s %s crossed", kind, name)
		}
	}
	if len(reflection.Pods(l.Manager)) > 0 || reflection.Pod(l.Manager, l.Namespace, "web") != nil {
		t.Error("pods are followed although they are off")
	}
}

// TestServiceGoesBeforeItsSlices checks that the slices of a Service that is excluded from reflection are not
// reflected if the Service is deleted before its slices.
func TestServiceGoesBeforeItsSlices(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	owner := l.Local.Create(t, l.Namespace, service("stays", `liqo.io/skip-reflection: "true"`))
	l.Local.Create(t, l.Namespace, slice("stays-x", "stays", "10.1.2.3"))
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "stays-x", fmt.Sprintf(
		`{metadata: {finalizers: [example.com/slow], ownerReferences: [{apiVersion: v1, kind: Service, name: stays, uid: %s}]}}`, owner.GetUID()))
	l.Start()
	// The test waits until the manager is idle. It is not sufficient that the manager is ready, because a slice that
	// is evaluated before its Service is known is reflected according to the policy.
	l.Settled()
	l.Quiet("the end of a Service that stays", func() {
		l.Local.Delete(t, "Service", l.Namespace, "stays")
		l.Eventually(func() error {
			if l.Manager.Scope(reflection.ServiceKind, l.Namespace).Object(Key{Namespace: l.Namespace, Name: "stays"}) != nil {
				return fmt.Errorf("the Service is still cached")
			}
			return nil
		})
	})
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "stays-x", `{metadata: {finalizers: null}}`)
}

// TestPodWithAFinalizer checks that a deleted pod with a finalizer gets a final phase before its finalizer is
// removed.
func TestPodWithAFinalizer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("job")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "job", `{metadata: {finalizers: [example.com/counts]}}`)
	l.RunRemote("job", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "job", reflectiontest.Field("status.phase", "Running"))
	l.Local.Delete(t, "Pod", l.Namespace, "job")
	// The provider's controllers delete the pod together with its ShadowPod, so the local pod must fail.
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "job")
	l.Present(l.Local, "Pod", l.Namespace, "job", reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", "RemotePodTerminated"), reflectiontest.Field("metadata.deletionGracePeriodSeconds", "0"))
	l.Settled()
	l.Quiet("a pod that waits for its finalizer", func() {
		l.Local.PatchYAML(t, "Pod", l.Namespace, "job", `{metadata: {annotations: {note: waits}}}`)
	})
	l.Local.PatchYAML(t, "Pod", l.Namespace, "job", `{metadata: {finalizers: null}}`)
	l.Absent(l.Local, "Pod", l.Namespace, "job")
}
