// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/remotedata"
)

// deletion contains the flags of "delete virtualnode".
type deletion struct {
	access  *invocation.Access
	timeout time.Duration
	force   bool
	// deleteData confirms that data on the provider may be deleted with the provider's last virtual node.
	deleteData bool
	remote     invocation.RemoteCluster
}

// NewDeleteCommand returns the command "delete virtualnode".
func NewDeleteCommand(access *invocation.Access) *cobra.Command {
	d := &deletion{access: access}
	command := namedVirtualNodeCommand(access, &cobra.Command{
		Short: "Drain virtual nodes and remove them",
		Long: "Drain virtual nodes, remove them, and wait until that is done. The remote namespaces of a provider are\n" +
			"deleted with its last virtual node; without --delete-data it is not removed while they have data of volumes. With --remote-context or --remote-kubeconfig the\n" +
			"ResourceSlices of the nodes are removed from the provider as well; run the command again if it was interrupted before.",
		Example: "  refractctl delete virtualnode milan\n" +
			"  refractctl delete virtualnode milan-gpu --remote-context=milan\n" +
			"  refractctl delete virtualnode milan --force   # the provider never comes back",
	}, d.runDeletion)
	command.Flags().DurationVar(&d.timeout, "timeout", invocation.DrainTimeout, "how long to wait")
	d.remote.AddFlags(command, access, "context of the provider, from which what was requested for these nodes is removed; otherwise it stays there until refractctl unpeer",
		"kubeconfig of the provider, by default that of this cluster")
	command.Flags().BoolVar(&d.force, "force", false, "abandon the provider, for all its virtual nodes: do not wait for it, and do not clean up there")
	invocation.AddDeleteDataFlag(command, &d.deleteData)
	return command
}

func (d *deletion) runDeletion(cmd *cobra.Command, c client.Client, name string) error {
	if err := d.remote.ValidateFlags(); err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.ErrOrStderr()
	if !d.remote.IsGiven() {
		vn, err := FindVirtualNode(ctx, c, name)
		if err != nil {
			return err
		}
		return d.removeNode(cmd, c, vn)
	}
	if d.force {
		return invocation.UsageError(errors.New("--force does not contact the provider: omit --remote-context and --remote-kubeconfig"))
	}
	o, err := d.peeringOptions(name, out)
	if err != nil {
		return err
	}
	vn, missing := FindVirtualNode(ctx, c, name)
	if missing != nil && !errors.Is(missing, errNoVirtualNode) {
		return missing
	}
	// The provider is checked before the virtual node is drained, so that the user notices a wrong context before the
	// node is gone.
	if vn != nil {
		o.ProviderID = string(vn.Spec.ClusterID)
	}
	request, err := o.FindRequest(ctx)
	if err != nil {
		return err
	}
	if vn != nil {
		if err := d.removeNode(cmd, c, vn); err != nil {
			return err
		}
	}
	found, removal, err := request.Withdraw(ctx)
	invocation.ResultOf(cmd).AddParted(removal)
	if err == nil && missing != nil && !found {
		return fmt.Errorf("%w, and cluster %s has no ResourceSlice %s for it", missing, request.ProviderID(), name)
	}
	return err
}

// peeringOptions returns the options for withdrawing the resource request of a virtual node from its provider.
func (d *deletion) peeringOptions(virtualNode string, out io.Writer) (*peering.Options, error) {
	consumer, err := d.access.PeeringCluster()
	if err != nil {
		return nil, err
	}
	provider, err := d.access.RemotePeer(&d.remote)
	if err != nil {
		return nil, fmt.Errorf("the provider: %w", err)
	}
	return &peering.Options{Consumer: consumer, Provider: provider, VirtualNode: virtualNode, Progress: invocation.PrintTo(out)}, nil
}

// removeNode removes a virtual node from this cluster.
func (d *deletion) removeNode(cmd *cobra.Command, c client.Client, vn *offloading.VirtualNode) error {
	ctx, out := cmd.Context(), cmd.ErrOrStderr()
	if owner := metav1.GetControllerOf(vn); owner != nil && owner.Kind == auth.ResourceSliceKind && !d.force {
		return fmt.Errorf("VirtualNode %s belongs to ResourceSlice %s, which would create it again: run refractctl delete resourceslice %s", vn.Name, owner.Name, owner.Name)
	}
	if d.force {
		if err := giveUp(ctx, c, vn, out); err != nil {
			return err
		}
	} else if err := d.checkData(ctx, c, out, vn); err != nil {
		return err
	}
	if err := c.Delete(ctx, vn, client.Preconditions{UID: &vn.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
	}
	err := awaitVirtualNode(ctx, c, vn, out, d.timeout, func(ctx context.Context, current *offloading.VirtualNode) (bool, string, error) {
		if current == nil {
			return true, "removed", nil
		}
		if current.DeletionTimestamp != nil && !d.deleteData && !d.force {
			if err := remotedata.RefuseHeld(ctx, c, offloading.NamespaceMapKind, vn.Namespace, string(vn.Spec.ClusterID), current.DeletionTimestamp.Time, invocation.ConfirmFlag); err != nil {
				return false, "", fmt.Errorf("%s: %w", vn.Name, err)
			}
		}
		for _, condition := range current.Status.Conditions {
			if condition.Status == offloading.DeletingConditionStatus {
				return false, condition.Message, nil
			}
		}
		return false, NodeCondition(current).Message, nil
	})
	if err == nil {
		invocation.ResultOf(cmd).AddObject("", offloading.VirtualNodeKind, vn.Namespace, vn.Name)
	}
	return err
}

// checkData returns an error if the virtual node is the last one of a provider that has data. If the user has
// confirmed the deletion of data, it records this on the VirtualNode instead.
func (d *deletion) checkData(ctx context.Context, c client.Client, out io.Writer, vn *offloading.VirtualNode) error {
	all := &offloading.VirtualNodeList{}
	if err := invocation.FillLists(ctx, c, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all.Items, func(other offloading.VirtualNode) bool {
		return other.UID != vn.UID && other.Spec.ClusterID == vn.Spec.ClusterID && other.DeletionTimestamp == nil
	}) {
		return nil
	}
	volumes, err := invocation.RemoteVolumes(ctx, c, out)
	if err != nil {
		return err
	}
	volumes = volumes.On(string(vn.Spec.ClusterID))
	if err := invocation.RefuseData(out, vn.Name, volumes, d.deleteData); err != nil || !d.deleteData {
		return err
	}
	return invocation.PatchTo(ctx, c, vn, map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.DeleteDataAnnotation: "true"}}})
}

// giveUp declares a provider permanently lost.
func giveUp(ctx context.Context, c client.Client, vn *offloading.VirtualNode, out io.Writer) error {
	provider := string(vn.Spec.ClusterID)
	if err := peering.AbandonPeer(ctx, c, provider); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: cluster %s is abandoned; the Events of its ForeignCluster list what remains there (kubectl describe foreigncluster %s)\n", vn.Name, provider, provider)
	return nil
}
