// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestHostNamespacesAreRefused checks that a pod that uses a namespace of its host is not offloaded until its user
// permits it with an annotation. The pod waits and does not fail, because a DaemonSet would replace a failed pod
// again and again.
func TestHostNamespacesAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	l.Start()
	for field, name := range map[string]string{"hostNetwork": "network", "hostPID": "processes"} {
		l.Local.Create(t, l.Namespace, `
apiVersion: v1
kind: Pod
metadata: {name: `+name+`}
spec:
  nodeName: `+l.Node+`
  `+field+`: true
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  tolerations: [{operator: Exists}]`)
		l.Event(l.Namespace, "Pod", name, "spec."+field, "liqo.io/type=virtual-node", "plugins.refract.io/host-namespaces: drop")
		l.Settled()
		l.Absent(l.Remote, "ShadowPod", l.RemoteNS, name)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Pending"))
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "network", `{metadata: {annotations: {plugins.refract.io/host-namespaces: drop}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "network", reflectiontest.Field("spec.pod.hostNetwork", ""))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "processes", `{metadata: {annotations: {plugins.refract.io/host-namespaces: keep}}}`)
	// The pod must be offloaded: the provider decides whether it may run.
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "processes", reflectiontest.Field("spec.pod.hostPID", "true"))
}
