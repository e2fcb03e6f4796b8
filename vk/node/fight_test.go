// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// fight runs the action of a rival until there is a warning that contains all of the given words, and then as often
// again. The action must be repeatable. The virtual kubelet must correct the Node only a few times.
func (s *suite) fight(rival func(), words ...string) {
	s.Helper()
	isExpected := func(warning string) bool {
		return strings.HasPrefix(warning, wire.ReflectionQuarantinedReason) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(warning, word) })
	}
	marker, begun, actions := s.auditEnd(), time.Now(), 0
	s.expect("warning", func(context.Context) string {
		rival()
		actions++
		if slices.ContainsFunc(s.warnings.all(), isExpected) {
			return ""
		}
		return fmt.Sprintf("there are %v after the writes %v", s.warnings.all(), s.writesSince(marker))
	})
	for range actions {
		rival()
	}
	// A quarantine lasts at most ten seconds. Some corrections need two writes, and heartbeats are writes, too.
	permitted := 20 + 2*int(time.Since(begun)/(5*time.Second))
	assert.LessOrEqual(s, len(s.nodeWritesSince(marker)), permitted, "the number of writes")
}

// nodeWritesSince returns the writes of Nodes after marker.
func (s *suite) nodeWritesSince(marker int64) (writes []string) {
	s.Helper()
	for _, write := range s.writesSince(marker) {
		if strings.Contains(write, " nodes ") {
			writes = append(writes, write)
		}
	}
	return writes
}

// testRivals checks that a client that repeatedly reverts a label, an annotation, a taint or a condition is named, and
// that the Node is corrected as soon as the desired state changes.
func testRivals(t *testing.T, s *suite) {
	for _, tc := range []struct {
		name, patch, subresource string
		words                    []string
	}{
		{"label", `{"metadata":{"labels":{"tier":"lead"}}}`, "", []string{"metadata.labels.tier"}},
		{"annotation", `{"metadata":{"annotations":{"note":"rival"}}}`, "", []string{"metadata.annotations.note"}},
		{"taint", `{"spec":{"taints":[{"key":"dedicated","value":"theirs","effect":"NoSchedule"}]}}`, "", []string{"spec.taints"}},
		{"capacity", `{"status":{"capacity":{"cpu":"1"}}}`, "status", []string{"status.capacity.cpu"}},
		{"bookkeeping", `{"metadata":{"annotations":{"virtual-kubelet.io/last-applied-node-status":"["}}}`, "", []string{"last-applied-node-status"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.in(t)
			s.createVirtualNode()
			s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.Annotations = map[string]string{"note": "ours"} })
			controller, end := s.kubelet()
			defer end()
			<-controller.Ready()
			s.expectNode("settled", func(n *corev1.Node) string {
				if n.Annotations["note"] != "ours" || !hasTaint(n, "dedicated") {
					return "it is incomplete"
				}
				return ready(corev1.ConditionTrue, "")(n)
			})
			s.fight(func() {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				var err error
				if tc.subresource == "" {
					err = s.admin.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.FieldOwner("rival"))
				} else {
					err = s.admin.SubResource(tc.subresource).Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.FieldOwner("rival"))
				}
				if !apierrors.IsConflict(err) {
					require.NoError(t, err)
				}
			}, append(tc.words, `field manager "rival" (Update)`)...)
			s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
				vn.Spec.Labels, vn.Spec.Annotations = map[string]string{"tier": "silver"}, map[string]string{"note": "new"}
				vn.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}
				vn.Spec.ResourceQuota.Hard = list("cpu", "5", "memory", "8Gi")
			})
			s.expectNode("corrected", func(n *corev1.Node) string {
				if n.Labels["tier"] != "silver" || n.Annotations["note"] != "new" || !hasTaint(n, "other") || n.Status.Capacity.Cpu().Value() != 5 {
					return "it is not what the VirtualNode says"
				}
				return ""
			})
		})
	}
}

// testDeletingRival checks that a Node that another client repeatedly deletes is created again after increasing delays,
// and at once when the VirtualNode has changed.
func testDeletingRival(t *testing.T, s *suite) {
	s.createVirtualNode()
	controller, _ := s.kubelet()
	<-controller.Ready()
	s.fight(func() {
		err := s.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		require.NoError(t, client.IgnoreNotFound(err))
	}, "another client deletes it", "audit log")
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.Labels = map[string]string{"tier": "silver"} })
	s.expectNode("recreated", func(n *corev1.Node) string { return ready(corev1.ConditionTrue, "")(n) })
}
