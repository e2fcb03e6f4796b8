// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// virtualNode creates a VirtualNode, and its namespace if it is missing. The finalizer of the VirtualNode stays until
// the test removes it, as the controller does after a drain.
func virtualNode(t *testing.T, namespace, name string) *offloading.VirtualNode {
	t.Helper()
	if admin(t).Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}) != nil {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{wire.VirtualNodeFinalizer}}, Spec: offloading.VirtualNodeSpec{ClusterID: core.ClusterID(name)}}
	create(t, vn)
	return vn
}

// printed collects the output of a running command.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

const tick = 20 * time.Millisecond

// controller acts as the controller: as soon as is returns true for the VirtualNode, it sets the conditions in shown
// one after the other, each when the command has printed the previous one. If the VirtualNode is being deleted, it then
// removes the finalizer.
func controller(t *testing.T, progress *printed, vn *offloading.VirtualNode, is func(*offloading.VirtualNode) bool, shown ...offloading.VirtualNodeCondition) <-chan error {
	t.Helper()
	c, done := admin(t), make(chan error, 1)
	go func() {
		done <- wait.PollUntilContextTimeout(t.Context(), tick, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			current := &offloading.VirtualNode{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(vn), current); err != nil || !is(current) {
				return false, err
			}
			for _, condition := range shown {
				patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
				if err == nil {
					err = c.Status().Patch(ctx, current, client.RawPatch(types.MergePatchType, patch))
				}
				if err != nil {
					return false, err
				}
				err = wait.PollUntilContextCancel(ctx, tick, true, func(context.Context) (bool, error) {
					return strings.Contains(progress.String(), condition.Message), nil
				})
				if err != nil {
					return false, err
				}
			}
			if current.DeletionTimestamp == nil {
				return true, nil
			}
			return true, c.Patch(ctx, current, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}()
	return done
}

func draining(reason, message string) offloading.VirtualNodeCondition {
	return offloading.VirtualNodeCondition{Type: offloading.NodeConditionType, Status: offloading.DrainingConditionStatus, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

func unschedulable(t *testing.T, name string) bool {
	t.Helper()
	node := &corev1.Node{}
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKey{Name: name}, node))
	return node.Spec.Unschedulable
}

// node creates the Node of a virtual node.
func node(t *testing.T, name string) {
	t.Helper()
	create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: name}}})
}

func askedForDrain(vn *offloading.VirtualNode) bool {
	return vn.Annotations[wire.DrainAnnotation] == "true"
}

func TestVirtualNodesAreCordonedAndDrained(t *testing.T) {
	vn := virtualNode(t, "liqo-tenant-milan", "milan")
	node(t, "milan")
	_, progress, err := refractctl(t, onCluster("cordon", "virtualnode", "milan")...)
	require.NoError(t, err)
	assert.Equal(t, "milan: cordoned\n", progress)
	assert.True(t, unschedulable(t, "milan"))

	shown := &printed{}
	done := controller(t, shown, vn, askedForDrain, draining("Draining", "2 pods are left on the node"), draining("Drained", "The node is drained"))
	require.NoError(t, refractctlTo(t, shown, onCluster("drain", "virtualnode", "milan")...))
	require.NoError(t, <-done)
	assert.Contains(t, shown.String(), "milan: 2 pods are left on the node\nmilan: The node is drained\n")

	// The command waits for the controller, because a controller that still drains the node would cordon it again.
	_, _, err = refractctl(t, onCluster("uncordon", "virtualnode", "milan", "--timeout=3s")...)
	require.ErrorContains(t, err, "virtual node milan: not done after 3s: waiting for the controller manager of this cluster, which does not answer")
	require.ErrorContains(t, err, "node milan stays cordoned: run the command again when the controller manager runs")
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err))
	assert.True(t, unschedulable(t, "milan"))
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.False(t, askedForDrain(vn))

	shown = &printed{}
	running := offloading.VirtualNodeCondition{Type: offloading.NodeConditionType, Status: offloading.RunningConditionStatus, Reason: "NodeUncordoned", Message: "The node is no longer being drained", LastTransitionTime: metav1.Now()}
	done = controller(t, shown, vn, func(*offloading.VirtualNode) bool { return strings.Contains(shown.String(), invocation.NoController) }, running)
	require.NoError(t, refractctlTo(t, shown, onCluster("uncordon", "virtualnode", "milan")...))
	require.NoError(t, <-done)
	assert.Contains(t, shown.String(), "milan: The node is no longer being drained\nmilan: uncordoned\n")
	assert.False(t, unschedulable(t, "milan"))

	_, progress, err = refractctl(t, onCluster("uncordon", "virtualnode", "milan")...)
	require.NoError(t, err)
	assert.Equal(t, "milan: uncordoned\n", progress, "there is no drain to wait for")
}

// TestADrainThatIsOverIsNotThisOne checks that the condition of an earlier drain is not mistaken for the success of the
// current drain.
func TestADrainThatIsOverIsNotThisOne(t *testing.T) {
	vn := virtualNode(t, "liqo-tenant-udine", "udine")
	node(t, "udine")
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{draining("Drained", "The node is drained")}}})
	require.NoError(t, err)
	require.NoError(t, admin(t).Status().Patch(t.Context(), vn, client.RawPatch(types.MergePatchType, patch)))
	drain := onCluster("drain", "virtualnode", "udine", "--timeout=3s")
	const waits = "virtual node udine: not done after 3s: waiting for the controller manager of this cluster"
	_, _, err = refractctl(t, drain...)
	require.ErrorContains(t, err, waits, "the node is not cordoned")

	_, _, err = refractctl(t, onCluster("cordon", "virtualnode", "udine")...)
	require.NoError(t, err)
	pod := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners},
			Spec: corev1.PodSpec{NodeName: "udine", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	web := pod("udine-web")
	create(t, web)
	_, _, err = refractctl(t, drain...)
	require.ErrorContains(t, err, waits, "a pod runs there")

	require.NoError(t, admin(t).Delete(t.Context(), web, client.GracePeriodSeconds(0)))
	_, progress, err := refractctl(t, onCluster("drain", "virtualnode", "udine")...)
	require.NoError(t, err)
	assert.Equal(t, "udine: The node is drained\n", progress)
}

// TestNodesOfOthersAreNotCordoned checks that a real worker with the name of a virtual node is not changed.
func TestNodesOfOthersAreNotCordoned(t *testing.T) {
	virtualNode(t, "liqo-tenant-lecce", "lecce")
	_, _, err := refractctl(t, onCluster("cordon", "virtualnode", "lecce")...)
	require.ErrorContains(t, err, "virtual node lecce is not registered: the condition Node of VirtualNode liqo-tenant-lecce/lecce says why")

	for _, labels := range []map[string]string{nil, {wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "bari"}} {
		worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lecce", Labels: labels}}
		create(t, worker)
		for _, command := range []string{"cordon", "drain", "uncordon"} {
			_, _, err := refractctl(t, onCluster(command, "virtualnode", "lecce")...)
			require.ErrorContains(t, err, "node lecce was not created for VirtualNode liqo-tenant-lecce/lecce", command)
			assert.False(t, unschedulable(t, "lecce"), command)
		}
		require.NoError(t, admin(t).Delete(t.Context(), worker))
	}
	// Another implementation has created this node.
	create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lecce", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}})
	_, _, err = refractctl(t, onCluster("cordon", "virtualnode", "lecce")...)
	require.NoError(t, err)
	assert.True(t, unschedulable(t, "lecce"))
}

func TestVirtualNodesAreRemoved(t *testing.T) {
	vn := virtualNode(t, "liqo-tenant-turin", "turin")
	_, _, err := refractctl(t, onCluster("delete", "virtualnode", "turin", "--force")...)
	require.ErrorContains(t, err, "there is no ForeignCluster of cluster turin")
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	require.Nil(t, vn.DeletionTimestamp, "it is deleted in spite of the error")

	cluster := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: core.ForeignClusterSpec{ClusterID: "turin"}}
	create(t, cluster)
	_, _, err = refractctl(t, onCluster("delete", "virtualnode", "turin", "--timeout=3s")...)
	require.ErrorContains(t, err, "virtual node turin: not done after 3s: waiting for the controller manager of this cluster, which does not answer")
	shown := &printed{}
	done := controller(t, shown, vn, func(vn *offloading.VirtualNode) bool { return vn.DeletionTimestamp != nil }, draining("Draining", "1 pod is left on the node"))
	require.NoError(t, refractctlTo(t, shown, onCluster("delete", "virtualnode", "turin", "--force")...))
	require.NoError(t, <-done)
	assert.Contains(t, shown.String(), "turin: cluster turin is abandoned; the Events of its ForeignCluster list what remains there")
	assert.Contains(t, shown.String(), "turin: 1 pod is left on the node\nturin: removed\n")
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKey{Name: "turin"}, cluster))
	assert.Equal(t, "true", cluster.Annotations[wire.PermanentlyUnreachableAnnotation])
}

func TestVirtualNodesMustBeNamed(t *testing.T) {
	virtualNode(t, "liqo-tenant-bari", "twice")
	virtualNode(t, "liqo-tenant-pisa", "twice")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"drain", "virtualnode"}, "no virtual node is named"},
		{[]string{"drain", "virtualnode", "nowhere"}, "there is no virtual node nowhere"},
		{[]string{"delete", "virtualnode", "twice"}, "namespaces liqo-tenant-bari and liqo-tenant-pisa have a VirtualNode of that name"},
		{[]string{"drain", "virtualnode", "twice", "--timeout=1s"}, "namespaces liqo-tenant-bari"},
		{[]string{"delete", "virtualnode", "turin", "--force", "--remote-context=turin"}, "--force does not contact the provider"},
	} {
		_, _, err := refractctl(t, onCluster(test.args...)...)
		assert.ErrorContains(t, err, test.says)
	}
}
