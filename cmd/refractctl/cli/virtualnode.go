// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/peering"
)

// drainPatience is how long the end of pods is awaited; they have a grace period, and disruption budgets.
const drainPatience = 10 * time.Minute

// virtualNodeCommand returns a command that does something to each of the virtual nodes that are named.
func virtualNodeCommand(access *clusterAccess, command *cobra.Command, do func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error) *cobra.Command {
	command.Use = "virtualnode NAME..."
	command.Aliases = []string{"virtualnodes", "vn"}
	command.ValidArgsFunction = access.completeVirtualNodes
	command.RunE = explained(func(cmd *cobra.Command, names []string) error {
		if len(names) == 0 {
			return usage(errors.New("no virtual node is named (list them with: refractctl info)"))
		}
		c, err := access.client(requestTimeout)
		if err != nil {
			return err
		}
		_, problems := attempt(names, func(name string) error {
			vn, err := findVirtualNode(cmd.Context(), c, name)
			if err != nil {
				return err
			}
			if err := do(cmd.Context(), c, vn, cmd.ErrOrStderr()); err != nil {
				return err
			}
			resultOf(cmd).add("", offloading.VirtualNodeKind, vn.Namespace, vn.Name)
			return nil
		})
		return problems
	})
	return command
}

func findVirtualNode(ctx context.Context, c client.Client, name string) (found *offloading.VirtualNode, err error) {
	all := &offloading.VirtualNodeList{}
	if err := list(ctx, c, all); err != nil {
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
		return nil, fmt.Errorf("there is no virtual node %s (list them with: refractctl info)", name)
	}
	return found, nil
}

func newCordonCommand(access *clusterAccess) *cobra.Command {
	return virtualNodeCommand(access, &cobra.Command{
		Short:   "Keep new pods off virtual nodes",
		Long:    "Keep new pods off virtual nodes. Running pods are not affected.",
		Example: "  refractctl cordon virtualnode milan",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		return schedulable(ctx, c, vn, false, out)
	})
}

func newUncordonCommand(access *clusterAccess) *cobra.Command {
	return virtualNodeCommand(access, &cobra.Command{
		Short:   "Make virtual nodes schedulable again",
		Example: "  refractctl uncordon virtualnode milan",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		if vn.DeletionTimestamp != nil {
			return fmt.Errorf("virtual node %s is being deleted: that cannot be undone", vn.Name)
		}
		if err := askForDrain(ctx, c, vn, nil); err != nil {
			return err
		}
		return schedulable(ctx, c, vn, true, out)
	})
}

func newDrainCommand(access *clusterAccess) *cobra.Command {
	var timeout time.Duration
	command := virtualNodeCommand(access, &cobra.Command{
		Short: "Move all pods off virtual nodes",
		Long: "Cordon virtual nodes, evict their pods, and wait until these have ended on the provider. Disruption budgets are\n" +
			"respected; pods of DaemonSets stay. The drain continues if the command is interrupted; uncordon stops it.",
		Example: "  refractctl drain virtualnode milan --timeout=30m",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		if err := validTimeout(timeout); err != nil {
			return err
		}
		yes := "true"
		if err := askForDrain(ctx, c, vn, &yes); err != nil {
			return err
		}
		return awaitVirtualNode(ctx, c, vn, out, timeout, func(current *offloading.VirtualNode) (bool, string) {
			if current == nil {
				return true, "it was deleted"
			}
			condition := nodeCondition(current)
			return condition.Status == offloading.DrainingConditionStatus && condition.Reason == "Drained", condition.Message
		})
	})
	command.Flags().DurationVar(&timeout, "timeout", drainPatience, "how long to wait")
	return command
}

func newDeleteCommand(access *clusterAccess) *cobra.Command {
	var timeout time.Duration
	var force bool
	var remoteContext, remoteFile string
	command := virtualNodeCommand(access, &cobra.Command{
		Short: "Drain virtual nodes and remove them",
		Long: "Drain virtual nodes, remove them, and wait until that is done. The remote namespaces of a provider are\n" +
			"deleted with its last virtual node, unless they have volumes with data.",
		Example: "  refractctl delete virtualnode milan\n" +
			"  refractctl delete virtualnode milan --force   # the provider never comes back",
	}, func(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
		if err := validTimeout(timeout); err != nil {
			return err
		}
		if force {
			if err := giveUp(ctx, c, vn, out); err != nil {
				return err
			}
		}
		if err := c.Delete(ctx, vn, client.Preconditions{UID: &vn.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
		}
		if err := awaitVirtualNode(ctx, c, vn, out, timeout, func(current *offloading.VirtualNode) (bool, string) {
			if current == nil {
				return true, "removed"
			}
			for _, condition := range current.Status.Conditions {
				if condition.Status == offloading.DeletingConditionStatus {
					return false, condition.Message
				}
			}
			return false, nodeCondition(current).Message
		}); err != nil || remoteContext == "" && remoteFile == "" {
			return err
		}
		return withdrawRequest(ctx, access, vn, remoteContext, remoteFile)
	})
	command.Flags().DurationVar(&timeout, "timeout", drainPatience, "how long to wait")
	command.Flags().StringVar(&remoteContext, "remote-context", "", "context of the provider, from which what was requested for these nodes is removed; otherwise it stays there until refractctl unpeer")
	command.Flags().StringVar(&remoteFile, "remote-kubeconfig", "", "kubeconfig of the provider, by default that of this cluster")
	completeFlagBy(command, "remote-context", access.completeContexts)
	command.Flags().BoolVar(&force, "force", false, "abandon the provider, for all its virtual nodes: do not wait for it, and do not clean up there")
	return command
}

// withdrawRequest removes what a provider was asked for a virtual node that is gone.
func withdrawRequest(ctx context.Context, access *clusterAccess, vn *offloading.VirtualNode, remoteContext, remoteFile string) error {
	consumer, err := access.cluster()
	if err != nil {
		return err
	}
	provider, err := access.remote(remoteContext, remoteFile)
	if err != nil {
		return fmt.Errorf("the provider: %w", err)
	}
	return (&peering.Options{Consumer: consumer, Provider: provider, ProviderID: string(vn.Spec.ClusterID), VirtualNode: vn.Name}).WithdrawRequest(ctx)
}

// giveUp declares that a provider never comes back.
func giveUp(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
	provider := string(vn.Spec.ClusterID)
	if err := peering.GiveUp(ctx, c, provider); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: cluster %s is abandoned; the Events of its ForeignCluster list what remains there (kubectl describe foreigncluster %s)\n", vn.Name, provider, provider)
	return nil
}

// askForDrain sets the annotation that has a virtual node drained, nil removes it.
func askForDrain(ctx context.Context, c client.Client, vn *offloading.VirtualNode, value *string) error {
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.DrainAnnotation, text)
	if err := c.Patch(ctx, vn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("annotating VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	return nil
}

// schedulable cordons the Node or undoes that.
func schedulable(ctx context.Context, c client.Client, vn *offloading.VirtualNode, is bool, out io.Writer) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name}}
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, !is)
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

func nodeCondition(vn *offloading.VirtualNode) offloading.VirtualNodeCondition {
	for _, condition := range vn.Status.Conditions {
		if condition.Type == offloading.NodeConditionType {
			return condition
		}
	}
	return offloading.VirtualNodeCondition{}
}

// awaitVirtualNode shows the progress until look, which gets nil when the VirtualNode is gone, says that it is over.
func awaitVirtualNode(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer, timeout time.Duration, look func(*offloading.VirtualNode) (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return awaitOne(ctx, out, "virtual node", vn.Name, timeout, func(ctx context.Context) (bool, string, error) {
		current := &offloading.VirtualNode{}
		err := c.Get(ctx, client.ObjectKeyFromObject(vn), current)
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != vn.UID:
			current = nil
		case err != nil:
			return false, "", fmt.Errorf("getting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
		}
		done, state := look(current)
		if state == "" {
			state = noController
		}
		return done, state, nil
	})
}
