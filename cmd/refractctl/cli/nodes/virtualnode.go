// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/poddrain"
)

// uncordonTimeout limits how long the controller may take to end a drain, which normally takes less than a second.
const uncordonTimeout = time.Minute

// virtualNodeCommand returns a command that calls do for each virtual node in the arguments.
func virtualNodeCommand(access *invocation.Access, command *cobra.Command, do func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error) *cobra.Command {
	return namedVirtualNodeCommand(access, command, func(cmd *cobra.Command, c client.Client, name string) error {
		vn, err := FindVirtualNode(cmd.Context(), c, name)
		if err != nil {
			return err
		}
		if err := do(cmd.Context(), c, vn, cmd.ErrOrStderr()); err != nil {
			return err
		}
		invocation.ResultOf(cmd).AddObject("", offloading.VirtualNodeKind, vn.Namespace, vn.Name)
		return nil
	})
}

// namedVirtualNodeCommand returns a command that calls do for each name in the arguments. The virtual nodes do not
// have to exist.
func namedVirtualNodeCommand(access *invocation.Access, command *cobra.Command, do func(cmd *cobra.Command, c client.Client, name string) error) *cobra.Command {
	command.Use = "virtualnode NAME..."
	command.Aliases = []string{"virtualnodes", "vn"}
	command.ValidArgsFunction = access.CompleteVirtualNodes
	command.RunE = invocation.ExplainErrors(func(cmd *cobra.Command, names []string) error {
		if len(names) == 0 {
			return invocation.UsageError(errors.New("no virtual node is named (list them with: refractctl info)"))
		}
		c, err := access.NewClient(invocation.RequestTimeout)
		if err != nil {
			return err
		}
		_, problems := invocation.AttemptEach(names, func(name string) error { return do(cmd, c, name) })
		return problems
	})
	return command
}

// FindVirtualNode returns the virtual node with the given name. The error wraps errNoVirtualNode if it does not
// exist.
func FindVirtualNode(ctx context.Context, c client.Client, name string) (found *offloading.VirtualNode, err error) {
	all := &offloading.VirtualNodeList{}
	if err := invocation.FillLists(ctx, c, all); err != nil {
		return nil, err
	}
	for i := range all.Items {
		switch {
		case all.Items[i].Name != name:
		case found != nil:
			return nil, fmt.Errorf("virtual node %s: namespaces %s and %s have a VirtualNode of that name: delete one with kubectl", name, found.Namespace, all.Items[i].Namespace)
		default:
			found = &all.Items[i]
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w %s (list them with: refractctl info)", errNoVirtualNode, name)
	}
	return found, nil
}

var errNoVirtualNode = errors.New("there is no virtual node")

// NewCordonCommand returns the command "cordon virtualnode".
func NewCordonCommand(access *invocation.Access) *cobra.Command {
	return virtualNodeCommand(access, &cobra.Command{
		Short:   "Keep new pods off virtual nodes",
		Long:    "Keep new pods off virtual nodes. Running pods are not affected.",
		Example: "  refractctl cordon virtualnode milan",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		return setSchedulable(ctx, c, vn, false, out)
	})
}

// NewUncordonCommand returns the command "uncordon virtualnode".
func NewUncordonCommand(access *invocation.Access) *cobra.Command {
	var timeout time.Duration
	command := virtualNodeCommand(access, &cobra.Command{
		Short:   "Make virtual nodes schedulable again",
		Long:    "Make virtual nodes schedulable again. A drain is stopped first.",
		Example: "  refractctl uncordon virtualnode milan",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		return uncordonNode(ctx, c, vn, out, timeout)
	})
	command.Flags().DurationVar(&timeout, "timeout", uncordonTimeout, "how long to wait until a drain has stopped")
	return command
}

// uncordonNode withdraws the drain, and makes the Node schedulable once the controller has ended the drain. Before
// that, the controller would cordon the Node again.
func uncordonNode(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer, timeout time.Duration) error {
	key := client.ObjectKeyFromObject(vn)
	switch {
	case vn.DeletionTimestamp != nil:
		return fmt.Errorf("virtual node %s is being deleted: that cannot be undone", vn.Name)
	case vn.Spec.CreateNode != nil && !*vn.Spec.CreateNode:
		return fmt.Errorf("virtual node %s: spec.createNode of VirtualNode %s is false, so its node is drained and removed: set it to true", vn.Name, key)
	}
	if _, err := nodeOf(ctx, c, vn); client.IgnoreNotFound(err) != nil {
		return err
	}
	current, err := askForDrain(ctx, c, vn, nil)
	if err != nil {
		return err
	}
	if isDraining(current) {
		if err := awaitEndOfDrain(ctx, c, vn, out, timeout); err != nil {
			return err
		}
	}
	return setSchedulable(ctx, c, vn, true, out)
}

// isDraining reports whether the controller drains the node or has already drained it.
func isDraining(vn *offloading.VirtualNode) bool {
	return NodeCondition(vn).Status == offloading.DrainingConditionStatus
}

// awaitEndOfDrain waits until the controller has observed that the drain was withdrawn.
func awaitEndOfDrain(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer, timeout time.Duration) error {
	err := awaitVirtualNode(ctx, c, vn, out, timeout, func(_ context.Context, current *offloading.VirtualNode) (bool, string, error) {
		switch {
		case current == nil:
			return false, "", fmt.Errorf("virtual node %s was deleted meanwhile", vn.Name)
		case isDraining(current):
			return false, "", nil // the condition still describes the drain
		}
		return true, NodeCondition(current).Message, nil
	})
	if ctx.Err() != nil || invocation.ExitCode(err) == invocation.ExitTimedOut {
		return fmt.Errorf("%w; node %s stays cordoned: run the command again when the controller manager runs", err, vn.Name)
	}
	return err
}

// NewDrainCommand returns the command "drain virtualnode".
func NewDrainCommand(access *invocation.Access) *cobra.Command {
	var timeout time.Duration
	command := virtualNodeCommand(access, &cobra.Command{
		Short: "Move all pods off virtual nodes",
		Long: "Cordon virtual nodes, evict their pods, and wait until these have ended on the provider. Disruption budgets are\n" +
			"respected; pods of DaemonSets stay. The drain continues if the command is interrupted; uncordon stops it.",
		Example: "  refractctl drain virtualnode milan --timeout=30m",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		if _, err := nodeOf(ctx, c, vn); client.IgnoreNotFound(err) != nil {
			return err
		}
		yes := "true"
		if _, err := askForDrain(ctx, c, vn, &yes); err != nil {
			return err
		}
		return awaitVirtualNode(ctx, c, vn, out, timeout, func(ctx context.Context, current *offloading.VirtualNode) (bool, string, error) {
			if current == nil {
				return true, "it was deleted", nil
			}
			condition := NodeCondition(current)
			switch {
			case current.DeletionTimestamp != nil:
				return false, condition.Message, nil
			case !isDraining(current):
				return false, "", nil // the condition describes something else, such as the registration of the node
			case condition.Reason != "Drained":
				return false, condition.Message, nil
			}
			// If the controller has not updated the condition yet, the condition may be from an earlier drain.
			if drained, err := isDrained(ctx, c, current); err != nil || !drained {
				return false, "", err
			}
			return true, condition.Message, nil
		})
	})
	command.Flags().DurationVar(&timeout, "timeout", invocation.DrainTimeout, "how long to wait")
	return command
}

// isDrained reports whether the Node is gone, or is cordoned and has no pods that a drain would evict.
func isDrained(ctx context.Context, c client.Client, vn *offloading.VirtualNode) (bool, error) {
	switch node, err := nodeOf(ctx, c, vn); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case !node.Spec.Unschedulable:
		return false, nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": vn.Name}); err != nil {
		return false, fmt.Errorf("listing the pods of node %s, %w", vn.Name, err)
	}
	return !slices.ContainsFunc(pods.Items, func(pod metav1.PartialObjectMetadata) bool { return poddrain.Evicts(&pod) }), nil
}

// askForDrain sets the annotation that requests the drain of a virtual node. If value is nil, it removes the
// annotation. It returns the updated VirtualNode.
func askForDrain(ctx context.Context, c client.Client, vn *offloading.VirtualNode, value *string) (*offloading.VirtualNode, error) {
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	changed := vn.DeepCopy()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.DrainAnnotation, text)
	if err := c.Patch(ctx, changed, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return nil, fmt.Errorf("annotating VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	return changed, nil
}

// nodeOf returns the Node of a virtual node. It returns an error if the Node with this name is not a virtual node of
// the same provider, for example if it is a real worker.
func nodeOf(ctx context.Context, c client.Client, vn *offloading.VirtualNode) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: vn.Name}, node); err != nil {
		return nil, fmt.Errorf("getting node %s, %w", vn.Name, err)
	}
	provider := string(vn.Spec.ClusterID)
	of, labelled := node.Labels[wire.RemoteClusterIDLabel]
	if node.Labels[wire.TypeLabel] == wire.VirtualNodeType && (!labelled || of == provider) {
		return node, nil
	}
	return nil, fmt.Errorf("node %s was not created for VirtualNode %s (it would have the labels %s=%s and %s=%s): it is left unchanged. Delete the VirtualNode, and create it with another name; for the node itself use kubectl",
		vn.Name, client.ObjectKeyFromObject(vn), wire.TypeLabel, wire.VirtualNodeType, wire.RemoteClusterIDLabel, provider)
}

// setSchedulable cordons or uncordons the Node.
func setSchedulable(ctx context.Context, c client.Client, vn *offloading.VirtualNode, is bool, out io.Writer) error {
	node, err := nodeOf(ctx, c, vn)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("virtual node %s is not registered: the condition %s of VirtualNode %s says why", vn.Name, offloading.NodeConditionType, client.ObjectKeyFromObject(vn))
	}
	if err != nil {
		return err
	}
	// If the Node was replaced by another one with the same name, the patch fails because of the UID.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"unschedulable":%t}}`, node.UID, !is)
	if err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("patching node %s, %w", vn.Name, err)
	}
	state := "cordoned"
	if is {
		state = "uncordoned"
	}
	fmt.Fprintf(out, "%s: %s\n", vn.Name, state)
	return nil
}

// NodeCondition returns the condition of the node of a VirtualNode.
func NodeCondition(vn *offloading.VirtualNode) offloading.VirtualNodeCondition {
	for _, condition := range vn.Status.Conditions {
		if condition.Type == offloading.NodeConditionType {
			return condition
		}
	}
	return offloading.VirtualNodeCondition{}
}

// awaitVirtualNode calls look and shows the progress until look returns true. When the VirtualNode is gone, look gets
// nil. As long as look returns no state, the output says that the command is waiting for the controller.
func awaitVirtualNode(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer, timeout time.Duration, look func(context.Context, *offloading.VirtualNode) (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return invocation.AwaitOne(ctx, out, "virtual node", vn.Name, timeout, func(ctx context.Context) (bool, string, error) {
		current := &offloading.VirtualNode{}
		err := c.Get(ctx, client.ObjectKeyFromObject(vn), current)
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != vn.UID:
			current = nil
		case err != nil:
			return false, "", fmt.Errorf("getting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
		}
		done, state, err := look(ctx, current)
		return done, cmp.Or(state, invocation.NoController), err
	})
}
