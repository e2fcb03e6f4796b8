// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A virtual kubelet is started with the name of a node that is not its own. The pods of that node are left alone, in extended
// namespaces and elsewhere, until the node is known to stand for the provider.
func TestPodsOfANodeThatIsNotOurs(t *testing.T) {
	for name, labels := range map[string]string{
		"a real node":                  "{}",
		"the node of another provider": "{liqo.io/type: virtual-node, liqo.io/remote-cluster-id: paris}",
		"a node of the provider's":     "{liqo.io/remote-cluster-id: %s}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.local.delete(t, "Node", "", l.node)
			if name == "a node of the provider's" {
				labels = fmt.Sprintf(labels, l.id)
			}
			l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: %s}}`, l.node, labels))
			other := l.namespace + "-other"
			l.local.createNamespace(t, other)
			stray := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: stray}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.node)
			l.local.create(t, other, stray)
			l.pod("web")
			l.pod("ending")
			if err := l.local.of("Pod", l.namespace).Delete(t.Context(), "ending", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			l.quiet("a node of somebody else", func() { l.start() })

			l.local.patchYAML(t, "Node", "", l.node, fmt.Sprintf(`{metadata: {labels: {liqo.io/type: virtual-node, liqo.io/remote-cluster-id: %s}}}`, l.id))
			l.present(l.remote, "ShadowPod", l.remoteNS, "web")
			l.absent(l.local, "Pod", l.namespace, "ending")
			l.present(l.local, "Pod", other, "stray", field("status.reason", "OffloadingBackOff"))
			l.settled()
			l.local.patchYAML(t, "Node", "", l.node, `{metadata: {labels: {liqo.io/type: null, liqo.io/remote-cluster-id: null}}}`)
			l.pod("late")
			l.present(l.remote, "ShadowPod", l.remoteNS, "late") // it is still ours
		})
	}
}
