// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
)

// Another virtual node leads for a while: nothing is written meanwhile, and all is made good afterwards.
func TestLeadingComesAndGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"kept", "changed", "deleted"} {
		l.local.create(t, l.namespace, service(name, ""))
	}
	l.start()
	for _, name := range []string{"kept", "changed", "deleted"} {
		l.present(l.remote, "Service", l.remoteNS, name)
	}
	l.settled()
	l.manager.SetLeading(false)
	l.quiet("following", func() {
		l.local.delete(t, "Service", l.namespace, "deleted")
		l.local.create(t, l.namespace, service("new", ""))
		l.local.patchYAML(t, "Service", l.namespace, "changed", `{spec: {sessionAffinity: ClientIP}}`)
		l.remote.delete(t, "Service", l.remoteNS, "kept")
	})
	l.pod("web") // pods are everybody's own
	l.present(l.remote, "ShadowPod", l.remoteNS, "web")
	l.manager.SetLeading(true)
	l.absent(l.remote, "Service", l.remoteNS, "deleted")
	l.present(l.remote, "Service", l.remoteNS, "new")
	l.present(l.remote, "Service", l.remoteNS, "kept")
	l.present(l.remote, "Service", l.remoteNS, "changed", field("spec.sessionAffinity", "ClientIP"))
}

// A kind without workers is left alone on both sides; the annotations of Services still decide about slices.
func TestKindThatIsOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.Workers = map[string]int{ServiceKind: 0, PodKind: 0} })
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: left, labels: {%s}}, spec: {ports: [{port: 1}]}}`, l.owned()))
	l.remote.create(t, l.remoteNS, fmt.Sprintf(shadowPod, "left", l.ownedPod()))
	l.local.create(t, l.namespace, service("stays", `liqo.io/skip-reflection: "true"`))
	l.local.create(t, l.namespace, slice("stays-x", "stays", "10.1.2.3"))
	l.local.create(t, l.namespace, slice("goes-x", "goes", "10.1.2.3"))
	l.pod("web")
	l.start()
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "goes-x")
	l.settled()
	l.present(l.remote, "Service", l.remoteNS, "left")
	l.present(l.remote, "ShadowPod", l.remoteNS, "left")
	for kind, name := range map[string]string{"Service": "stays", "ShadowEndpointSlice": "stays-x", "ShadowPod": "web"} {
		if l.remote.get(t, kind, l.remoteNS, name) != nil {
			t.Errorf("%s %s crossed", kind, name)
		}
	}
	if len(l.manager.Pods()) > 0 || l.manager.Pod(l.namespace, "web") != nil {
		t.Error("pods are followed although they are off")
	}
}

// A Service that stays is deleted before its slices are: they do not cross in the meantime.
func TestServiceGoesBeforeItsSlices(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	owner := l.local.create(t, l.namespace, service("stays", `liqo.io/skip-reflection: "true"`))
	l.local.create(t, l.namespace, slice("stays-x", "stays", "10.1.2.3"))
	l.local.patchYAML(t, "EndpointSlice", l.namespace, "stays-x", fmt.Sprintf(
		`{metadata: {finalizers: [example.com/slow], ownerReferences: [{apiVersion: v1, kind: Service, name: stays, uid: %s}]}}`, owner.GetUID()))
	l.start()
	l.settled() // Ready is not done: a slice that is looked at first without its Service crosses by the policy
	l.quiet("the end of a Service that stays", func() {
		l.local.delete(t, "Service", l.namespace, "stays")
		l.eventually(func() error {
			if l.manager.Scope(ServiceKind, l.namespace).Object(Key{Namespace: l.namespace, Name: "stays"}) != nil {
				return fmt.Errorf("the Service is still cached")
			}
			return nil
		})
	})
	l.local.patchYAML(t, "EndpointSlice", l.namespace, "stays-x", `{metadata: {finalizers: null}}`)
}

// A pod that somebody counts by a finalizer is over before it is let go.
func TestPodWithAFinalizer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("job")
	l.local.patchYAML(t, "Pod", l.namespace, "job", `{metadata: {finalizers: [example.com/counts]}}`)
	l.runRemote("job", running(0))
	l.present(l.local, "Pod", l.namespace, "job", field("status.phase", "Running"))
	l.local.delete(t, "Pod", l.namespace, "job")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "job") // and its pod with it
	l.present(l.local, "Pod", l.namespace, "job", field("status.phase", "Failed"), field("status.reason", "RemotePodTerminated"), field("metadata.deletionGracePeriodSeconds", "0"))
	l.settled()
	l.quiet("a pod that waits for its finalizer", func() {
		l.local.patchYAML(t, "Pod", l.namespace, "job", `{metadata: {annotations: {note: waits}}}`)
	})
	l.local.patchYAML(t, "Pod", l.namespace, "job", `{metadata: {finalizers: null}}`)
	l.absent(l.local, "Pod", l.namespace, "job")
}
