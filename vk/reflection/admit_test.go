// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestPodsThatAKubeletRejects checks that a pod that a kubelet would reject fails with the kubelet's reason, so that
// its controller creates another pod. Such a pod must never reach the provider. A pod that was admitted before must
// not fail because of a later change to the node, not even after a restart.
func TestPodsThatAKubeletRejects(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.PatchYAML(t, "Node", "", l.Node, `{metadata: {labels: {kubernetes.io/os: linux, zone: a}}}`)
	l.Local.PatchYAML(t, "Node", "", l.Node, `{status: {allocatable: {cpu: "2", memory: 1Gi, pods: "6"}, capacity: {cpu: "2", memory: 1Gi, pods: "6"}}}`, "status")
	l.start()
	const plain = `containers: [{name: c, image: i}]`
	l.reader("first", `containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}], resources: {requests: {cpu: 1500m}}}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "first")
	l.reader("other-port", `containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8081}], resources: {requests: {cpu: 500m}}}], nodeSelector: {zone: a}, os: {name: linux}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "other-port")
	for name, tc := range map[string]struct{ fields, reason, word string }{
		"cpu":      {`containers: [{name: c, image: i, resources: {requests: {cpu: 600m}}}]`, "OutOfcpu", "capacity: 2"},
		"memory":   {`containers: [{name: c, image: i, resources: {requests: {memory: 2Gi}}}]`, "OutOfmemory", "capacity: 1Gi"},
		"port":     {`containers: [{name: c, image: i, ports: [{containerPort: 81, hostPort: 8080}]}]`, "NodePorts", l.Namespace + "/first"},
		"selector": {plain + `, nodeSelector: {zone: b}`, "NodeAffinity", "spec.nodeSelector"},
		"affinity": {plain + `, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}]}}}`, "NodeAffinity", "spec.affinity"},
		"os":       {plain + `, os: {name: windows}`, "PodOSNotSupported", "windows"},
		"os-label": {plain + `, nodeSelector: {kubernetes.io/os: windows}`, "PodOSSelectorNodeLabelDoesNotMatch", "linux"},
	} {
		l.reader(name, tc.fields)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", tc.reason))
		l.Event(l.Namespace, "Pod", name, "Warning", tc.reason, tc.word)
	}
	// A resize of a pod must free resources.
	resize := `[{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "500m"}]`
	reflectiontest.Must(l.Local.Of("Pod", l.Namespace).Patch(t.Context(), "first", types.JSONPatchType, []byte(resize), metav1.PatchOptions{}, "resize"))(t)
	l.Settled()
	l.reader("resized", `containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "resized")
	// The node becomes smaller and its labels change. Running pods must not be affected.
	l.Local.PatchYAML(t, "Node", "", l.Node, `{metadata: {labels: {zone: b}}}`)
	l.Local.PatchYAML(t, "Node", "", l.Node, `{status: {allocatable: {cpu: "1", memory: 1Gi, pods: "6"}}}`, "status")
	l.Stop()
	l.start()
	l.Settled()
	for _, name := range []string{"first", "other-port"} {
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Pending"))
		assert.NotNil(t, l.Remote.Get(t, "ShadowPod", l.RemoteNS, name))
	}
	for _, name := range []string{"cpu", "port", "selector", "os"} {
		assert.Nilf(t, l.Remote.Get(t, "ShadowPod", l.RemoteNS, name), "pod %s was offloaded", name)
	}
	// A deleted pod must free its resources.
	l.Local.PatchYAML(t, "Node", "", l.Node, `{status: {allocatable: {cpu: "2", memory: 1Gi, pods: "6"}}}`, "status")
	for _, name := range []string{"first", "resized"} {
		l.Local.DeleteNow(t, "Pod", l.Namespace, name)
		l.Absent(l.Local, "Pod", l.Namespace, name)
	}
	l.Settled()
	l.reader("next", `containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}], resources: {requests: {cpu: 1500m}}}]`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "next")
}
