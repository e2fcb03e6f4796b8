// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/oscillation"
)

// compareLoop compares the Node with the desired state after every observation. As long as they differ, it retries with
// backoff.
func (c *Controller) compareLoop(ctx context.Context) error {
	wait := minRetryDelay
	for {
		settled, err := c.compareNode(ctx)
		fight := new(oscillation.QuarantineError)
		quarantined := errors.As(err, &fight)
		if err := withoutQuarantines(err); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "The node cannot be updated, retrying", "in", wait.String())
			c.reportError(err)
		}
		var again <-chan time.Time
		switch {
		case settled:
			wait = minRetryDelay
		case quarantined:
			// The next write is possible when the quarantine ends. Other errors are retried earlier.
			again = c.config.Clock.After(min(fight.Left, maxRetryDelay))
		default:
			again = c.config.Clock.After(wait)
			wait = min(2*wait, maxRetryDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.trigger:
		case <-again:
		}
	}
}

// compareNode updates the Node to the desired state. settled reports whether the Node is in the desired state, and the
// condition about it was written to the VirtualNode.
func (c *Controller) compareNode(ctx context.Context) (settled bool, err error) {
	actual := c.observed.node()
	desired := c.refreshDesired(ctx, actual)
	if desired == nil {
		return true, nil // without a VirtualNode, the Node is not changed
	}
	if actual == nil || !c.ownsNode(actual) {
		// The Node was deleted or replaced, or is not in the cache yet. c.ensureNode reads it from the API server to
		// determine this.
		err := c.ensureNode(ctx)
		c.warnOnce(NotRegisteredReason, errorText(err))
		c.showNode(ctx, err)
		return false, err
	}
	// All writes are attempted even if one of them fails: if the taints are rejected, the owner of the lease must still
	// be written, and vice versa.
	forgot, err := c.forgetSpoiled(ctx, actual, desired)
	owned, leaseErr := c.syncLeaseOwner(ctx, actual)
	err = errors.Join(err, c.syncTaints(ctx, actual, desired.Spec.Taints), leaseErr)
	if forgot || hasDrifted(actual, desired) {
		return false, errors.Join(err, c.correctNode(ctx, actual, desired))
	}
	if err != nil {
		return false, err
	}
	c.warnOnce(UpdateFailedReason, "")
	return c.showNode(ctx, nil) && owned, nil
}

// refreshDesired computes the desired Node. It returns nil if there is no VirtualNode.
func (c *Controller) refreshDesired(ctx context.Context, actual *corev1.Node) *corev1.Node {
	vn := c.observed.virtualNode()
	if vn == nil {
		return nil
	}
	vn, problems := withoutInvalid(vn)
	if id := vn.Spec.ClusterID; id != "" && string(id) != c.config.RemoteClusterID {
		problems = append(problems, fmt.Sprintf("spec.clusterID: %s is not provider %s, which node %s represents", id, c.config.RemoteClusterID, c.config.Name))
	}
	c.warnOnce(InvalidReason, strings.Join(problems, "; "))
	now := health{network: networkIgnored}
	if err := c.config.Pinger.Unreachable(); err != nil {
		now.unreachable = err.Error()
	}
	if c.config.CheckNetwork && (vn.Spec.DisableNetworkCheck == nil || !*vn.Spec.DisableNetworkCheck) {
		now.network = networkOf(c.observed.foreignCluster())
	}
	desired := c.config.desiredNode(vn)
	c.version.setLabel(desired, actual)
	folder := c.folderPlugins()
	setFolderAnnotation(ctx, desired, folder)

	c.mu.Lock()
	defer c.mu.Unlock()
	var previous []corev1.NodeCondition
	switch {
	case c.desired != nil:
		previous = c.desired.Status.Conditions
	case actual != nil:
		// After a restart of this process, the conditions of the Node count as the previous ones, because a restart is
		// not a transition.
		previous = actual.Status.Conditions
	}
	now.folder = folder
	desired.Status.Conditions = now.nodeConditions(desired.Status.Allocatable, previous, metav1.NewTime(c.config.Clock.Now()))
	c.desired = desired
	return desired
}

// folderPlugins returns the plugins in the folder of this virtual kubelet.
func (c *Controller) folderPlugins() []folderplugins.Plugin {
	if c.config.FolderPlugins == nil {
		return nil
	}
	return c.config.FolderPlugins()
}

// setFolderAnnotation sets the annotation about the plugins in the folder on the desired Node. It overwrites a value
// from the VirtualNode.
func setFolderAnnotation(ctx context.Context, desired *corev1.Node, found []folderplugins.Plugin) {
	delete(desired.Annotations, folderplugins.Annotation)
	text, err := folderplugins.Encode(found)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "The plugins of the folder cannot be described on the node")
	case text != "":
		desired.Annotations[folderplugins.Annotation] = text
	}
}

// correctNode writes the desired Node, unless another client reverts it repeatedly.
func (c *Controller) correctNode(ctx context.Context, actual, desired *corev1.Node) error {
	differing, err := differingFields(actual, desired)
	if err != nil {
		return err
	}
	write := contentIntent(desired, differing)
	if err := c.mayWrite(ctx, nodeContent, write, differing); err != nil {
		return err
	}
	c.expectWrite(write)
	c.deliverNode(desired)
	return nil
}

// deliverNode passes the Node to the virtual-kubelet library, which writes the difference. It never blocks: if the
// library is still busy with an earlier version, this version is dropped, and the next comparison delivers the
// desired Node of that time.
func (c *Controller) deliverNode(desired *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	library := c.library
	if library == nil || library.full {
		return // the Node is not registered yet, and the registration will use c.desired
	}
	library.full = true
	go func() {
		library.push(desired.DeepCopy())
		c.mu.Lock()
		defer c.mu.Unlock()
		library.full = false
	}()
}

// ensureNode creates the Node if it does not exist. It returns a takenError if the Node belongs to another owner.
func (c *Controller) ensureNode(ctx context.Context) error {
	nodes := c.client.CoreV1().Nodes()
	existing, err := nodes.Get(ctx, c.config.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c.createNode(ctx)
	case err != nil:
		return fmt.Errorf("getting node %s, %w", c.config.Name, err)
	case existing.Labels[wire.TypeLabel] != wire.VirtualNodeType && !c.ownsNode(existing):
		return takenError{fmt.Errorf("node %s exists and is not a virtual node (no label %s=%s): rename the VirtualNode or remove the node",
			c.config.Name, wire.TypeLabel, wire.VirtualNodeType)}
	case existing.Labels[wire.RemoteClusterIDLabel] != c.config.RemoteClusterID && !c.ownsNode(existing):
		return takenError{fmt.Errorf("node %s exists and is the virtual node of provider %q, not of %s: rename the VirtualNode or remove the node",
			c.config.Name, existing.Labels[wire.RemoteClusterIDLabel], c.config.RemoteClusterID)}
	case c.refreshDesired(ctx, existing) == nil:
		return c.errNoVirtualNode()
	}
	c.recordOwnNode(existing)
	return nil
}

// ownsNode reports whether node was recognized as ours before, or was maintained by an earlier process of this virtual
// kubelet. The current labels of node do not matter.
func (c *Controller) ownsNode(node *corev1.Node) bool {
	c.mu.Lock()
	found := node.UID == c.own
	c.mu.Unlock()
	if found {
		return true
	}
	last, _ := lastWritten(node)
	return last.labels[wire.TypeLabel] == wire.VirtualNodeType && last.labels[wire.RemoteClusterIDLabel] == c.config.RemoteClusterID
}

// recordOwnNode records that node is ours.
func (c *Controller) recordOwnNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = node.UID
}

func (c *Controller) createNode(ctx context.Context) error {
	vn := c.observed.virtualNode()
	if vn == nil {
		return c.errNoVirtualNode()
	}
	if !vn.DeletionTimestamp.IsZero() {
		return fmt.Errorf("VirtualNode %s/%s is being deleted: its node is not created again", vn.Namespace, vn.Name)
	}
	if create := vn.Spec.CreateNode; create != nil && !*create {
		return fmt.Errorf("spec.createNode of VirtualNode %s/%s is false: no node is created", vn.Namespace, vn.Name)
	}
	// All these writes have the same state, because a deletion always reverts the same write.
	write := intent{cause: hashOf(fmt.Sprintf("%s/%d", vn.UID, vn.Generation))}
	if err := c.mayWrite(ctx, wholeNode, write, nil); err != nil {
		return fmt.Errorf("creating node %s, %w", c.config.Name, err)
	}
	desired := c.refreshDesired(ctx, nil)
	created, err := c.client.CoreV1().Nodes().Create(ctx, withAppliedTaints(desired), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating node %s, %w", c.config.Name, err)
	}
	c.fights.RecordWrite(wholeNode, write.cause, write.state)
	c.recordOwnNode(created)
	log.FromContext(ctx).Info("Created the node")
	return nil
}

func (c *Controller) errNoVirtualNode() error {
	return fmt.Errorf("there is no VirtualNode %s in namespace %s: create it to set the resources of node %s",
		c.config.VirtualNode, c.config.Namespace, c.config.Name)
}

// recoverNode creates a deleted Node again, so that the library can continue. It reports other errors of the library's
// status updates, which the next comparison retries.
func (c *Controller) recoverNode(ctx context.Context, err error) error {
	if apierrors.IsNotFound(err) {
		c.triggerComparison()
		return c.ensureNode(ctx)
	}
	c.reportError(fmt.Errorf("writing the status of node %s, %w", c.config.Name, err))
	return err
}

// reportError reports an error from the API server with Config.Warn if retries cannot resolve it.
func (c *Controller) reportError(err error) {
	if refusal := describeRefusal(err); refusal != "" {
		c.warnOnce(UpdateFailedReason, refusal)
	}
}

// describeRefusal returns the message about an error of the API server that retries cannot resolve. For other errors
// and for nil, it returns "".
func describeRefusal(err error) string {
	if policy := admission.DenyingPolicy(err); policy != "" {
		return admission.Note(policy, err)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return err.Error()
	}
	return ""
}

// forgetSpoiled removes malformed annotations of the library, because the library could otherwise not update the Node.
// It reports whether there were such annotations.
func (c *Controller) forgetSpoiled(ctx context.Context, actual, desired *corev1.Node) (bool, error) {
	_, spoiled := lastWritten(actual)
	if len(spoiled) == 0 {
		return false, nil
	}
	patch, err := forgetPatch(spoiled)
	if err != nil {
		return false, fmt.Errorf("encoding the annotations of node %s, %w", actual.Name, err)
	}
	write := contentIntent(desired, spoiled)
	if err := c.mayWrite(ctx, nodeBookkeeping, write, annotationPaths(spoiled)); err != nil {
		return false, err
	}
	written, err := c.client.CoreV1().Nodes().Patch(ctx, actual.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return false, fmt.Errorf("removing the invalid annotations %v of node %s, %w", spoiled, actual.Name, err)
	}
	c.recordChange(nodeBookkeeping, write, actual, written)
	log.FromContext(ctx).Info("Removed invalid annotations of the node", "annotations", spoiled)
	return true, nil
}

// syncTaints writes the taints if they differ from the desired ones.
func (c *Controller) syncTaints(ctx context.Context, actual *corev1.Node, ours []corev1.Taint) error {
	taints, applied, changed := mergeTaints(actual, ours)
	if !changed {
		return nil
	}
	patch, err := taintPatch(actual, taints, applied)
	if err != nil {
		return fmt.Errorf("encoding the taints of node %s, %w", actual.Name, err)
	}
	write := intent{cause: hashOf(applied)}
	if err := c.mayWrite(ctx, nodeTaints, write, []string{"spec.taints"}); err != nil {
		return err
	}
	written, err := c.client.CoreV1().Nodes().Patch(ctx, actual.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("writing the taints of node %s, %w", actual.Name, err)
	}
	c.recordChange(nodeTaints, write, actual, written)
	return nil
}
