// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// readyNode makes the node with the given name appear ready to the scheduler.
func (l *claimLab) readyNode(name string) {
	l.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	l.Local.PatchYAML(l.T, "Node", "", name, fmt.Sprintf(`{status: {allocatable: {cpu: "9", memory: 9Gi, pods: "99"}, capacity: {cpu: "9", memory: 9Gi, pods: "99"},
  conditions: [{type: Ready, status: "True", lastHeartbeatTime: %q, lastTransitionTime: %q}]}}`, now, now), "status")
}

// stateful creates a pod with a claim, as a StatefulSet does. The pod prefers nodes with the label worker.
func (l *claimLab) stateful(name, claim string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  automountServiceAccountToken: false
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: worker, operator: Exists}]}}]}}
  containers: [{name: db, image: "db:1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]`, name, claim))
}

func (l *claimLab) deletePod(name string) {
	l.Helper()
	none := int64(0)
	require.NoError(l, l.Local.Of("Pod", l.Namespace).Delete(l.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
	l.Absent(l.Local, "Pod", l.Namespace, name)
}

// TestPodsFollowTheirVolumes checks with a real scheduler that the first pod of a claim is scheduled to the virtual
// node, and every later pod is scheduled to the same node or not at all.
func TestPodsFollowTheirVolumes(t *testing.T) {
	t.Parallel()
	consumer := testenv.ForTest(t, testenv.Options{Name: "oslo", CRDPaths: []string{"../../api/crds"}, AuditLog: true})[0]
	l := newClaimLabOn(t, consumer, "Delete")
	l.Start()
	l.claim("data-db-0", "")
	l.readyNode(l.Node)
	l.stateful("db-0", "data-db-0")
	l.bound("data-db-0")
	l.Present(l.Local, "Pod", l.Namespace, "db-0", reflectiontest.Field("spec.nodeName", l.Node))
	l.deletePod("db-0")

	l.Local.Create(t, "", `{apiVersion: v1, kind: Node, metadata: {name: worker-1, labels: {worker: ""}}}`)
	l.readyNode("worker-1")
	l.stateful("db-0", "data-db-0")
	l.Present(l.Local, "Pod", l.Namespace, "db-0", reflectiontest.Field("spec.nodeName", l.Node))
	l.deletePod("db-0")
	l.Local.PatchYAML(t, "Node", "", l.Node, `{spec: {unschedulable: true}}`)
	// Wait until this client sees the change: the scheduler sees it at about the same time.
	l.Eventually(func() error {
		node, err := l.Local.Core.CoreV1().Nodes().Get(l.Context(), l.Node, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }) {
			err = errors.New("the node has no taint yet")
		}
		return err
	})
	l.stateful("db-0", "data-db-0")
	l.Present(l.Local, "Pod", l.Namespace, "db-0", says("PodScheduled", "False"), reflectiontest.Field("spec.nodeName", ""))
}

// TestTheSchedulerIsSentAway checks with a real scheduler that another node is selected for a claim if storage is
// disabled for the provider.
func TestTheSchedulerIsSentAway(t *testing.T) {
	t.Parallel()
	consumer := testenv.ForTest(t, testenv.Options{Name: "turku", CRDPaths: []string{"../../api/crds"}, AuditLog: true})[0]
	l := newClaimLabOn(t, consumer, "Delete", func(o *reflection.Options) { o.Storage.Enabled = false })
	l.Start()
	l.claim("data-db-0", "")
	l.readyNode(l.Node)
	l.stateful("db-0", "data-db-0")
	l.Event(l.Namespace, reflection.ClaimKind, "data-db-0", "Warning", "ReschedulingRequired")
	l.Local.Create(t, "", `{apiVersion: v1, kind: Node, metadata: {name: worker-1, labels: {worker: ""}}}`)
	l.Local.PatchYAML(t, "Node", "", l.Node, `{spec: {unschedulable: true}}`)
	l.readyNode("worker-1")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data-db-0", reflectiontest.Field("metadata.annotations/volume.kubernetes.io/selected-node", "worker-1"))
}
