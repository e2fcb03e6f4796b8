// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peering"
)

const (
	// invitationLifetime is the default lifetime of an invitation. With a longer lifetime, a leaked invitation can be
	// used for longer.
	invitationLifetime    = 24 * time.Hour
	minInvitationLifetime = 10 * time.Minute      // the minimum lifetime that API servers accept
	maxInvitationLifetime = 1 << 32 * time.Second // the maximum lifetime that API servers accept
	// peeringUserTimeout limits how long it may take to grant or revoke the access of a consumer.
	peeringUserTimeout = 2 * time.Minute
)

// ProviderOptions returns the options for a peering with this cluster as the provider. Only the ID of the consumer is
// known.
func ProviderOptions(access *invocation.Access, consumer string, out io.Writer) (*peering.Options, error) {
	absent, err := cluster.Absent(consumer)
	if err != nil {
		return nil, invocation.UsageError(err)
	}
	cluster, err := access.PeeringCluster()
	if err != nil {
		return nil, err
	}
	return &peering.Options{Consumer: absent, Provider: cluster, Progress: invocation.PrintTo(out)}, nil
}

// consumerFlag is a flag of liqoctl with the name of a consumer. It can be used instead of the argument.
type consumerFlag struct{ id string }

func (c *consumerFlag) addFlag(command *cobra.Command) {
	command.Flags().StringVar(&c.id, "consumer-cluster-id", "", "cluster id of the consumer, in place of the argument")
	command.Args = func(_ *cobra.Command, args []string) error {
		if given := len(args); given > 1 || given == 1 && c.id != "" || given == 0 && c.id == "" {
			return fmt.Errorf("%d arguments and --consumer-cluster-id=%q are given: give the cluster id of one consumer", given, c.id)
		}
		return nil
	}
}

// consumerOf returns the ID of the consumer from the argument or the flag.
func (c *consumerFlag) consumerOf(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return c.id
}

// NewGeneratePeeringUserCommand returns the command "generate peering-user".
func NewGeneratePeeringUserCommand(access *invocation.Access) *cobra.Command {
	share, limits, consumer, gateway := &ShareFlags{}, &limitFlags{}, &consumerFlag{}, &gatewayFlags{}
	var server, file, network string
	var ranges []string
	var life time.Duration
	var unchecked bool
	command := &cobra.Command{
		Use:   "peering-user CONSUMER",
		Short: "Admit a consumer, and print a kubeconfig for peering",
		Long: "Admit another cluster as a consumer of this one, and print a kubeconfig with which its administrator can peer with this\n" +
			"cluster. The kubeconfig has only the permissions of the consumer. Anyone who has it can use the resources granted to the consumer, so\n" +
			"treat it like a password; --output-file writes a file that only you can read. It expires after --expires-in; tokens requested with it remain valid until refractctl delete peering-user.\n" +
			"The command can be run again, also to change the resources.",
		Example: "  refractctl generate peering-user rome --context=milan --cpu=8 --memory=16Gi --output-file=milan-for-rome.yaml\n" +
			"  refractctl peer --context=rome --remote-kubeconfig=milan-for-rome.yaml   # in the other cluster",
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, args []string) error {
			resources, err := share.ParseResources()
			if err != nil {
				return invocation.UsageError(err)
			}
			if life < minInvitationLifetime {
				return invocation.UsageError(fmt.Errorf("--expires-in is %s: use %s at least", life, minInvitationLifetime))
			}
			if life > maxInvitationLifetime {
				return invocation.UsageError(fmt.Errorf("--expires-in is %s: use %s at most", life, maxInvitationLifetime))
			}
			o, err := ProviderOptions(access, consumer.consumerOf(args), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if o.Network.ProviderRanges, err = ParseRanges("pod-cidrs", ranges); err != nil {
				return invocation.UsageError(err)
			}
			if o.Network.Mode, err = ParseNetwork(network); err != nil {
				return invocation.UsageError(err)
			}
			if o.Gateways, err = gateway.parseSettings(cmd.Flags()); err != nil {
				return invocation.UsageError(err)
			}
			if o.TenantLimits, err = limits.parseLimits(); err != nil {
				return invocation.UsageError(err)
			}
			o.Resources, o.APIServerURL, o.UncheckedURL = resources, strings.TrimSuffix(server, "/"), unchecked
			var secret *secretFile
			if file != "" {
				if secret, err = newSecretFile(file); err != nil {
					return invocation.UsageError(fmt.Errorf("--output-file: %w", err))
				}
				defer secret.discardPending()
			}
			var kubeconfig []byte
			var expires time.Time
			err = invocation.RunWithin(cmd.Context(), peeringUserTimeout, func(ctx context.Context) (err error) {
				kubeconfig, expires, err = o.Invite(ctx, life)
				return err
			})
			if err != nil {
				return err
			}
			result := invocation.ResultOf(cmd)
			result.CredentialsExpire = expires.UTC().Format(time.RFC3339)
			fmt.Fprintf(cmd.ErrOrStderr(), "join until %s, in %s: refractctl peer --remote-kubeconfig=%s\n", result.CredentialsExpire, consumer.consumerOf(args), cmp.Or(file, "FILE"))
			if secret != nil {
				return secret.writeContent(kubeconfig)
			}
			if mode := exposedMode(cmd.Root().OutOrStdout()); mode != 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: the standard output is a file that other users can read (mode %#o): make it readable for you alone (chmod 600), or use --output-file\n", mode)
			}
			result.Kubeconfig = string(kubeconfig)
			_, err = invocation.UnchangedWriter(cmd.OutOrStdout()).Write(kubeconfig)
			return err
		}),
	}
	consumer.addFlag(command)
	flags := command.Flags()
	share.AddFlags(flags)
	limits.addFlags(command)
	flags.StringSliceVar(&ranges, "pod-cidrs", nil, "ranges of the pods of this cluster, as the consumer sees them, by default those of its nodes")
	flags.StringVar(&network, "network", "", "what connects the pods of the clusters: gateway (creates the gateway of this cluster, which the kubeconfig then contains), reachable or none (by default the consumer chooses reachable or none)")
	invocation.CompleteFlag(command, "network", "gateway", "reachable", "none")
	gateway.addServerFlags(command, "the gateway of this cluster")
	flags.StringVar(&server, "api-server-url", "", "the API server of this cluster as the consumer reaches it, by default the server of the kubeconfig")
	addUncheckedFlag(flags, &unchecked, "--api-server-url")
	flags.StringVar(&file, "output-file", "", "file for the kubeconfig, in place of the standard output, with mode 0600; one of that name is replaced")
	flags.DurationVar(&life, "expires-in", invitationLifetime, "how long the kubeconfig can be used")
	return command
}

// NewDeletePeeringUserCommand returns the command "delete peering-user".
func NewDeletePeeringUserCommand(access *invocation.Access) *cobra.Command {
	consumer := &consumerFlag{}
	command := &cobra.Command{
		Use:   "peering-user CONSUMER",
		Short: "Revoke the access of a consumer",
		Long: "Revoke the access of a consumer to this cluster immediately, and remove its tenant namespace. The command refuses while this cluster\n" +
			"has namespaces of the consumer.",
		Example: "  refractctl delete peering-user rome --context=milan",
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, args []string) error {
			o, err := ProviderOptions(access, consumer.consumerOf(args), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			removal, err := invocation.ResultWithin(cmd.Context(), peeringUserTimeout, o.Withdraw)
			invocation.ResultOf(cmd).AddParted(removal)
			return err
		}),
	}
	consumer.addFlag(command)
	return command
}
