// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/oscillation"
)

// part is a part of the Node that is written separately. Another client may repeatedly revert each part.
type part string

const (
	wholeNode       part = "creation"
	nodeContent     part = "labels, annotations and status"
	nodeTaints      part = "taints"
	nodeBookkeeping part = "annotations of the last write"
)

// intent is a write that the library was asked for.
type intent struct{ cause, state uint64 }

// mayWrite returns a *oscillation.QuarantineError if another client repeatedly reverts the part of the Node, or
// repeatedly deletes the Node. When a quarantine begins, mayWrite reports the name of this client and the differing
// fields.
func (c *Controller) mayWrite(ctx context.Context, p part, w intent, differing []string) error {
	err := c.fights.MayWrite(p, w.cause, w.state)
	var fight *oscillation.QuarantineError
	if !errors.As(err, &fight) || !fight.Grew && fight.Rival != "" {
		return err
	}
	rival, known := c.describeRival(ctx, differing)
	fight.Rival = rival
	if known {
		c.fights.RecordRival(p, rival)
	}
	if (fight.Grew || known) && c.config.Warn != nil {
		c.config.Warn(wire.ReflectionQuarantinedReason, fmt.Sprintf("Node %s (%s): %s", c.config.Name, p, fight.Error()))
	}
	return err
}

// withoutQuarantines returns the errors joined in err except for quarantines, which mayWrite has already reported.
func withoutQuarantines(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each of its errors is looked at
		var others []error
		for _, one := range joined.Unwrap() {
			others = append(others, withoutQuarantines(one))
		}
		return errors.Join(others...)
	}
	if fight := (*oscillation.QuarantineError)(nil); errors.As(err, &fight) {
		return nil
	}
	return err
}

// describeRival describes the client that deletes the Node or writes its differing fields, and reports whether this
// client is known. It reads the Node from the API server, because the cache contains no field managers.
func (c *Controller) describeRival(ctx context.Context, differing []string) (rival string, known bool) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, c.config.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return oscillation.DescribeDeleter(nil, nil), true
	case err != nil:
		return "", false
	}
	subresource := ""
	if len(differing) > 0 && strings.HasPrefix(differing[0], "status.") && oscillation.HasOtherWriter(node.ManagedFields, "status") {
		subresource = "status"
	}
	return oscillation.DescribeWriter(node.ManagedFields, subresource, differing), oscillation.HasOtherWriter(node.ManagedFields, subresource)
}

// expectWrite records that the library will write the Node next. recordLibraryWrite records the write if it succeeds.
func (c *Controller) expectWrite(w intent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected = &w
}

// recordLibraryWrite records a successful write of the library. Heartbeats do not count.
func (c *Controller) recordLibraryWrite() {
	c.mu.Lock()
	expected := c.expected
	c.expected = nil
	c.mu.Unlock()
	if expected != nil {
		c.fights.RecordWrite(nodeContent, expected.cause, expected.state)
	}
}

// recordChange records a write to a part of the Node, unless the write has changed nothing.
func (c *Controller) recordChange(p part, w intent, before, after *corev1.Node) {
	if after.ResourceVersion != before.ResourceVersion {
		c.fights.RecordWrite(p, w.cause, w.state)
	}
}

// differingFields returns the paths of the desired fields that are missing in the Node or have other values there.
func differingFields(actual, desired *corev1.Node) ([]string, error) {
	have, err := comparedFields(actual)
	if err != nil {
		return nil, err
	}
	want, err := comparedFields(desired)
	if err != nil {
		return nil, err
	}
	return oscillation.Differences(want, have, false), nil
}

// comparedFields returns the fields of a Node that hasDrifted compares. Conditions are listed by their types.
func comparedFields(node *corev1.Node) (map[string]any, error) {
	conditions := map[string]any{}
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		conditions[string(condition.Type)] = fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
	}
	compared := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: node.Labels, Annotations: node.Annotations},
		Status: corev1.NodeStatus{Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, Addresses: node.Status.Addresses,
			DaemonEndpoints: node.Status.DaemonEndpoints, Images: node.Status.Images},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&compared)
	if err != nil {
		return nil, fmt.Errorf("comparing node %s, %w", node.Name, err)
	}
	status, _ := fields["status"].(map[string]any)
	status["conditions"] = conditions
	status["nodeInfo"] = map[string]any{"kubeletVersion": node.Status.NodeInfo.KubeletVersion,
		"operatingSystem": node.Status.NodeInfo.OperatingSystem, "architecture": node.Status.NodeInfo.Architecture}
	return fields, nil
}

// annotationPaths returns the paths of annotations.
func annotationPaths(keys []string) (paths []string) {
	for _, key := range keys {
		paths = append(paths, "metadata.annotations."+key)
	}
	return paths
}

// libraryNodes is the client for Nodes that the virtual-kubelet library uses. It reports successful writes.
type libraryNodes struct {
	typedcorev1.NodeInterface
	wrote func()
}

// Patch implements typedcorev1.NodeInterface. Each patch of the library contains a new time of the heartbeat, so each
// successful patch changes the Node.
func (n libraryNodes) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	patched, err := n.NodeInterface.Patch(ctx, name, pt, data, options, subresources...)
	if err == nil {
		n.wrote()
	}
	return patched, err
}

// contentIntent returns the write that corrects the differing fields of the Node. The times of conditions are no part
// of its cause.
func contentIntent(desired *corev1.Node, differing []string) intent {
	cause := desired.DeepCopy()
	for i := range cause.Status.Conditions {
		cause.Status.Conditions[i].LastHeartbeatTime, cause.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	encoded, err := json.Marshal(cause)
	if err != nil {
		panic(err) // a Node can always be encoded
	}
	return intent{hashOf(string(encoded)), hashOf(strings.Join(differing, "\x00"))}
}

func hashOf(text string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text))
	return sum.Sum64()
}
