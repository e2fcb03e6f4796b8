// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/nodes"
	"github.com/refract-project/refract/cmd/refractctl/cli/peerings"
)

// sliceFlags contains the flags of "create resourceslice".
type sliceFlags struct {
	provider, class string
	noVirtualNode   bool
	timeout         time.Duration
}

// NewCreateResourceSliceCommand returns the command "create resourceslice".
func NewCreateResourceSliceCommand(access *invocation.Access) *cobra.Command {
	share, o := &peerings.ShareFlags{}, &sliceFlags{}
	command := &cobra.Command{
		Use:     "resourceslice NAME",
		Aliases: []string{"rs"},
		Short:   "Request resources of a provider that was joined by Liqo's protocol",
		Long: "Request resources of a provider, and create a virtual node with the granted ones. The provider must have been joined with liqoctl peer,\n" +
			"or with an Identity, and authentication.joinProviders must be set in the values of this cluster. Resources that no flag requests are\n" +
			"those that the provider grants by default. For a provider that refractctl peer has joined, run refractctl create virtualnode.",
		Example: "  refractctl create resourceslice milan-gpu --remote-cluster-id=milan --cpu=8 --resource=nvidia.com/gpu=2",
		Args:    cobra.ExactArgs(1),
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, args []string) error {
			resources, err := share.ParseResources()
			if err != nil {
				return invocation.UsageError(err)
			}
			if err := invocation.UsageError(invocation.CheckVirtualNode(args[0])); err != nil {
				return err
			}
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			return o.requestResources(ctx, cmd, c, args[0], resources)
		}),
	}
	flags := command.Flags()
	share.AddFlags(flags)
	for _, name := range []string{"cpu", "memory", "pods"} {
		flags.Lookup(name).Usage = "amount of " + name + " to request; by default what the provider grants"
	}
	flags.StringVar(&o.provider, "remote-cluster-id", "", "cluster id of the provider")
	flags.StringVar(&o.class, "class", string(auth.DefaultResourceSliceClass), "class of the request, which names the controller of the provider that decides on it")
	flags.BoolVar(&o.noVirtualNode, "no-virtual-node", false, "create no virtual node")
	flags.DurationVar(&o.timeout, "timeout", peerings.PeerTimeout, "how long to wait")
	_ = command.MarkFlagRequired("remote-cluster-id")
	invocation.CompleteFlagBy(command, "remote-cluster-id", access.CompletePeers)
	return command
}

// requestResources creates or changes a ResourceSlice, and waits for the answer of the provider.
func (o *sliceFlags) requestResources(ctx context.Context, cmd *cobra.Command, c client.Client, name string, resources corev1.ResourceList) error {
	namespace, identity := wire.TenantNamespace(o.provider), wire.ControlPlaneIdentity(o.provider)
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: identity}, &auth.Identity{}); err != nil {
		if missingKind(err) {
			return fmt.Errorf("cluster %s was not joined by Liqo's protocol, there is no Identity %s in namespace %s: run refractctl create virtualnode %s --provider=%s, or liqoctl peer", o.provider, identity, namespace, name, o.provider)
		}
		return fmt.Errorf("getting Identity %s/%s, %w", namespace, identity, err)
	}
	slice := &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels:      map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: o.provider, wire.RemoteClusterIDLabel: o.provider},
		Annotations: map[string]string{}},
		Spec: auth.ResourceSliceSpec{Class: auth.ResourceSliceClass(o.class), ProviderClusterID: ptr.To(core.ClusterID(o.provider)), Resources: resources},
	}
	if !o.noVirtualNode {
		slice.Annotations[wire.CreateVirtualNodeAnnotation] = "true"
	}
	err := c.Create(ctx, slice)
	if apierrors.IsAlreadyExists(err) {
		present := &auth.ResourceSlice{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(slice), present); err != nil {
			return fmt.Errorf("getting ResourceSlice %s/%s, %w", namespace, name, err)
		}
		if !isRequest(present) {
			return fmt.Errorf("ResourceSlice %s/%s is a request of cluster %s to this one: use another name", namespace, name, o.provider)
		}
		err = invocation.PatchTo(ctx, c, slice, map[string]any{"metadata": map[string]any{"labels": slice.Labels, "annotations": slice.Annotations}, "spec": map[string]any{"class": slice.Spec.Class, "resources": resources}})
	}
	if err != nil {
		return fmt.Errorf("creating ResourceSlice %s/%s, %w", namespace, name, err)
	}
	invocation.ResultOf(cmd).AddObject("", auth.ResourceSliceKind, namespace, name)
	if err := invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "resourceslice", name, o.timeout, func(ctx context.Context) (bool, string, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
			return false, "", fmt.Errorf("getting ResourceSlice %s/%s, %w", namespace, name, err)
		}
		return describeAnswer(slice, o.provider)
	}); err != nil || o.noVirtualNode {
		return err
	}
	vn := &offloading.VirtualNode{}
	vn.Namespace, vn.Name = namespace, name
	if err := invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "virtualnode", name, o.timeout, func(ctx context.Context) (bool, string, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(vn), vn); err != nil {
			return false, "its VirtualNode is created", client.IgnoreNotFound(err)
		}
		return true, "VirtualNode " + name + " is created", nil
	}); err != nil {
		return err
	}
	invocation.ResultOf(cmd).AddObject("", offloading.VirtualNodeKind, namespace, name)
	return nil
}

// describeAnswer reports whether a provider has accepted a ResourceSlice, and what it has granted.
func describeAnswer(slice *auth.ResourceSlice, provider string) (accepted bool, state string, err error) {
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		condition := slice.Status.Condition(what)
		switch {
		case condition == nil:
			return false, "provider " + provider + " has not answered yet", nil
		case condition.Status != auth.ResourceSliceAccepted:
			return false, "", fmt.Errorf("provider %s denied ResourceSlice %s (%s): %s", provider, slice.Name, what, condition.Message)
		}
	}
	return true, "accepted", nil
}

// NewDeleteResourceSliceCommand returns the command "delete resourceslice".
func NewDeleteResourceSliceCommand(access *invocation.Access) *cobra.Command {
	var timeout time.Duration
	var provider string
	command := &cobra.Command{
		Use:     "resourceslice NAME...",
		Aliases: []string{"resourceslices", "rs"},
		Short:   "Drain the virtual nodes of requests for resources, and end the requests",
		Long: "Delete ResourceSlices of this cluster: their virtual nodes are drained and removed, then the requests are removed from the provider. The\n" +
			"remote namespaces of a provider are deleted with its last virtual node, unless they have data of volumes.",
		Example: "  refractctl delete resourceslice milan-gpu",
		Args:    cobra.MinimumNArgs(1),
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, names []string) error {
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			namespace := access.NamespaceFlag()
			if provider != "" {
				namespace = wire.TenantNamespace(provider)
			}
			_, problems := invocation.AttemptEach(names, func(name string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				return endRequest(ctx, cmd, c, namespace, name, timeout)
			})
			return problems
		}),
	}
	command.Flags().StringVar(&provider, "remote-cluster-id", "", "cluster id of the provider, in place of --namespace")
	command.Flags().DurationVar(&timeout, "timeout", invocation.DrainTimeout, "how long to wait")
	invocation.CompleteFlagBy(command, "remote-cluster-id", access.CompletePeers)
	return command
}

// isRequest reports whether a ResourceSlice is a request of this cluster, and not of a consumer.
func isRequest(slice *auth.ResourceSlice) bool {
	return slice.Labels[wire.ReplicationLabel] == "true" && slice.Labels[wire.ReplicatedLabel] != "true"
}

// endRequest deletes a ResourceSlice of this cluster, and waits until it is gone. If namespace is empty, it searches all
// tenant namespaces.
func endRequest(ctx context.Context, cmd *cobra.Command, c client.Client, namespace, name string, timeout time.Duration) error {
	all := &auth.ResourceSliceList{}
	if err := c.List(ctx, all, client.InNamespace(namespace)); err != nil && !missingKind(err) {
		return fmt.Errorf("listing ResourceSlices, %w", err)
	}
	var found []auth.ResourceSlice
	for i := range all.Items {
		if all.Items[i].Name == name && isRequest(&all.Items[i]) {
			found = append(found, all.Items[i])
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("there is no ResourceSlice %s of this cluster: list them with kubectl get resourceslices --all-namespaces", name)
	case 1:
	default:
		return invocation.UsageError(fmt.Errorf("namespaces %s and %s have a ResourceSlice %s: set --remote-cluster-id", found[0].Namespace, found[1].Namespace, name))
	}
	slice := &found[0]
	if err := c.Delete(ctx, slice, client.Preconditions{UID: &slice.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
	}
	uid := slice.UID
	err := invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "resourceslice", name, timeout, func(ctx context.Context) (bool, string, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(slice), slice)
		if apierrors.IsNotFound(err) || err == nil && slice.UID != uid {
			return true, "removed", nil
		}
		if err != nil {
			return false, "", fmt.Errorf("getting ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
		}
		vn := &offloading.VirtualNode{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(slice), vn); err == nil {
			return false, "its virtual node is drained: " + nodes.NodeCondition(vn).Message, nil
		}
		return false, "it is removed from its provider", nil
	})
	if err == nil {
		invocation.ResultOf(cmd).AddObject("", auth.ResourceSliceKind, slice.Namespace, name)
	}
	return err
}
