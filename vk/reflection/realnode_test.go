// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestPodsOfANodeThatIsNotOurs checks that a virtual kubelet that is started with the name of another node does not
// change this node's pods, in offloaded or other namespaces, until it is known that the node represents the provider.
func TestPodsOfANodeThatIsNotOurs(t *testing.T) {
	for name, labels := range map[string]string{
		"a real node":                  "{}",
		"the node of another provider": "{liqo.io/type: virtual-node, liqo.io/remote-cluster-id: paris}",
		"a node of the provider's":     "{liqo.io/remote-cluster-id: %s}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.Local.Delete(t, "Node", "", l.Node)
			if name == "a node of the provider's" {
				labels = fmt.Sprintf(labels, l.ID)
			}
			l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: %s}}`, l.Node, labels))
			other := l.Namespace + "-other"
			l.Local.CreateNamespace(t, other)
			stray := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: stray}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.Node)
			l.Local.Create(t, other, stray)
			l.Pod("web")
			l.Pod("ending")
			require.NoError(t, l.Local.Of("Pod", l.Namespace).Delete(t.Context(), "ending", metav1.DeleteOptions{}))
			l.Quiet("a node of another owner", func() { l.Start() })

			l.Local.PatchYAML(t, "Node", "", l.Node, fmt.Sprintf(`{metadata: {labels: {liqo.io/type: virtual-node, liqo.io/remote-cluster-id: %s}}}`, l.ID))
			l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
			l.Absent(l.Local, "Pod", l.Namespace, "ending")
			l.Present(l.Local, "Pod", other, "stray", reflectiontest.Field("status.reason", "OffloadingBackOff"))
			l.Settled()
			l.Local.PatchYAML(t, "Node", "", l.Node, `{metadata: {labels: {liqo.io/type: null, liqo.io/remote-cluster-id: null}}}`)
			l.Pod("late")
			// This pod must still be reflected, because the node belongs to this virtual kubelet.
			l.Present(l.Remote, "ShadowPod", l.RemoteNS, "late")
		})
	}
}
