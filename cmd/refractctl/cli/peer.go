// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/peering"
)

// peerPatience is how long a virtual node may take to be Ready.
const peerPatience = 3 * time.Minute

// twoClusters are the flags of the commands that are about a consumer and a provider.
type twoClusters struct {
	access                    *clusterAccess
	remoteContext, remoteFile string
	dryRun                    bool
	timeout                   time.Duration
}

func (t *twoClusters) addFlags(command *cobra.Command, patience time.Duration) {
	flags := command.Flags()
	flags.StringVar(&t.remoteContext, "remote-context", "", "context of the provider")
	flags.StringVar(&t.remoteFile, "remote-kubeconfig", "", "kubeconfig of the provider, by default that of this cluster")
	flags.BoolVar(&t.dryRun, "dry-run", false, "check, and change nothing")
	flags.DurationVar(&t.timeout, "timeout", patience, "how long to wait")
	completeFlagBy(command, "remote-context", t.access.completeContexts)
}

// options for the two clusters.
func (t *twoClusters) options(out io.Writer) (*peering.Options, error) {
	if err := validTimeout(t.timeout); err != nil {
		return nil, err
	}
	if t.remoteContext == "" && t.remoteFile == "" {
		return nil, errors.New("the provider is not named: give --remote-context, or --remote-kubeconfig")
	}
	remote := newClusterAccess()
	*remote.flags.KubeConfig, *remote.flags.Context = cmp.Or(t.remoteFile, *t.access.flags.KubeConfig), t.remoteContext
	*remote.flags.Timeout = *t.access.flags.Timeout
	consumer, err := t.access.cluster()
	if err != nil {
		return nil, fmt.Errorf("the consumer: %w", err)
	}
	provider, err := remote.cluster()
	if err != nil {
		return nil, fmt.Errorf("the provider: %w", err)
	}
	return &peering.Options{Consumer: consumer, Provider: provider, DryRun: t.dryRun, Progress: printTo(out)}, nil
}

// cluster returns what a peering needs of one.
func (a *clusterAccess) cluster() (*peering.Cluster, error) {
	c, err := a.client(requestTimeout)
	if err != nil {
		return nil, err
	}
	config, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = cmp.Or(config.Timeout, requestTimeout)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	name := *a.flags.Context
	if raw, err := a.flags.ToRawKubeConfigLoader().RawConfig(); err == nil && name == "" {
		name = raw.CurrentContext
	}
	return &peering.Cluster{Name: cmp.Or(name, config.Host), Config: config, Client: c, Clientset: clientset}, nil
}

func newPeerCommand(access *clusterAccess) *cobra.Command {
	t := &twoClusters{access: access}
	share := map[corev1.ResourceName]*string{}
	var others []string
	var virtualNode, server string
	var overlapping bool
	command := &cobra.Command{
		Use:   "peer",
		Short: "Make another cluster a node of this one",
		Long: "Join two clusters in which Refract is installed: this one, the consumer, gets a virtual node that stands for the other one, the\n" +
			"provider. Everything is checked before anything is changed. The command can be run again: it goes on where it was interrupted,\n" +
			"takes over other resources, and renews the certificate with which this cluster opens the provider.",
		Example: "  refractctl peer --context=rome --remote-context=milan --cpu=8 --memory=16Gi\n" +
			"  refractctl peer --remote-kubeconfig=milan.yaml --remote-api-server-url=https://milan.example.com:6443\n" +
			"  refractctl peer --remote-context=milan --resource=nvidia.com/gpu=2 --dry-run",
		Args: cobra.NoArgs,
		RunE: explained(func(cmd *cobra.Command, _ []string) error {
			resources, err := parseResources(share, others)
			if err != nil {
				return err
			}
			o, err := t.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o.Resources, o.VirtualNode, o.APIServerURL, o.OverlappingRanges = resources, virtualNode, strings.TrimSuffix(server, "/"), overlapping
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			return o.Peer(ctx)
		}),
	}
	t.addFlags(command, peerPatience)
	flags := command.Flags()
	for name, byDefault := range map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourceMemory: "8Gi", corev1.ResourcePods: "110"} {
		share[name] = flags.String(string(name), byDefault, "what the provider gives: "+string(name))
	}
	flags.StringArrayVar(&others, "resource", nil, "what it gives besides, as NAME=QUANTITY (may be repeated)")
	flags.StringVar(&virtualNode, "virtual-node", "", "name of the node, by default the id of the provider")
	flags.StringVar(&server, "remote-api-server-url", "", "the provider's API server as pods of this cluster reach it, by default as the kubeconfig has it")
	flags.BoolVar(&overlapping, "overlapping-ranges", false, "join clusters whose pod ranges overlap, because a network between them translates addresses")
	return command
}

// parseResources names the flag that is wrong.
func parseResources(share map[corev1.ResourceName]*string, others []string) (corev1.ResourceList, error) {
	resources := corev1.ResourceList{}
	add := func(flag string, name corev1.ResourceName, text string) error {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("--%s is %q: use a quantity such as 4 or 8Gi", flag, text)
		}
		resources[name] = quantity
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(share)) {
		if err := add(string(name), name, *share[name]); err != nil {
			return nil, err
		}
	}
	for _, text := range others {
		name, quantity, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--resource is %q: use NAME=QUANTITY, such as nvidia.com/gpu=2", text)
		}
		if err := add("resource="+name, corev1.ResourceName(name), quantity); err != nil {
			return nil, err
		}
	}
	return resources, nil
}

func newUnpeerCommand(access *clusterAccess) *cobra.Command {
	t := &twoClusters{access: access}
	command := &cobra.Command{
		Use:   "unpeer",
		Short: "End a peering",
		Long: "Drain the virtual nodes of a provider and remove them, then the access of this cluster to the provider and what the provider has for\n" +
			"this cluster. Disruption budgets are respected. Nothing is removed that refractctl peer has not made. For a provider that never\n" +
			"comes back, use: refractctl delete virtualnode NAME --force",
		Example: "  refractctl unpeer --context=rome --remote-context=milan",
		Args:    cobra.NoArgs,
		RunE: explained(func(cmd *cobra.Command, _ []string) error {
			o, err := t.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
			defer cancel()
			if err := o.Unpeer(ctx); err != nil || t.dryRun {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "the peering has ended")
			return nil
		}),
	}
	t.addFlags(command, drainPatience)
	return command
}
