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

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/doctor"
	"github.com/refract-project/refract/internal/refractctl/liqo"
)

// adoptTimeout limits how long replacing all virtual kubelets may take.
const adoptTimeout = 5 * time.Minute

// liqoOptions returns the options of the commands for clusters with Liqo.
func liqoOptions(access *invocation.Access, nodes []string, out io.Writer) (*liqo.Options, error) {
	cluster, err := access.PeeringCluster()
	if err != nil {
		return nil, err
	}
	return &liqo.Options{Client: cluster.Client, Clientset: cluster.Clientset, Nodes: nodes, Progress: invocation.PrintTo(out)}, nil
}

func newLiqoCommand(access *invocation.Access) *cobra.Command {
	return invocation.NewGroup("liqo", "Run Refract's virtual kubelet under Liqo's controllers",
		newLiqoCheckCommand(access), invocation.WithResult(newLiqoAdoptCommand(access)), invocation.WithResult(newLiqoRevertCommand(access)))
}

func newLiqoCheckCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	command := &cobra.Command{
		Use:   "check [NODE...]",
		Short: "Show prerequisites for running Refract's virtual kubelet",
		Long:  "Show which virtual kubelet each virtual node runs, and what Refract's virtual kubelet requires in addition. Nothing is changed.",
		Example: "  refractctl liqo check\n" +
			"  refractctl liqo check milan -o json",
		ValidArgsFunction: access.CompleteVirtualNodes,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, nodes []string) error {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			o, err := liqoOptions(access, nodes, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			found, err := o.Check(cmd.Context())
			if err != nil {
				return err
			}
			if err := printFindings(cmd.OutOrStdout(), output, found); err != nil {
				return err
			}
			return countErrors(found)
		}),
	}
	output = invocation.AddOutput(command, "", "")
	return command
}

func newLiqoAdoptCommand(access *invocation.Access) *cobra.Command {
	var image string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "adopt [NODE...]",
		Short: "Replace Liqo's virtual kubelet with Refract's",
		Long: "Run Refract's virtual kubelet for virtual nodes created by Liqo: grant it the permissions that Liqo's role lacks, replace the image, and wait\n" +
			"until the node is ready. A node that does not become ready is reverted. Without names, all virtual nodes are adopted, and those created\n" +
			"later get the image, but no permissions: run adopt again for virtual nodes that are created later. Running pods are not affected.\n" +
			"Use refractctl liqo revert to undo it.",
		Example: "  refractctl liqo adopt milan --image=registry.example.com/refract/virtual-kubelet:v1\n" +
			"  refractctl liqo adopt --image=registry.example.com/refract/virtual-kubelet:v1",
		ValidArgsFunction: access.CompleteVirtualNodes,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, nodes []string) error {
			if image == "" {
				return invocation.UsageError(errors.New("--image is missing: set the image of Refract's virtual kubelet"))
			}
			return inTime(cmd, access, nodes, timeout, func(ctx context.Context, o *liqo.Options) error {
				o.Image = image
				return o.Adopt(ctx)
			})
		}),
	}
	command.Flags().StringVar(&image, "image", "", "image of Refract's virtual kubelet, from a registry that this cluster can pull from")
	command.Flags().DurationVar(&timeout, "timeout", adoptTimeout, "how long to wait")
	return command
}

func newLiqoRevertCommand(access *invocation.Access) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "revert [NODE...]",
		Short: "Put Liqo's virtual kubelet back",
		Long: "Restore the previous image of adopted virtual nodes, and revoke the permissions that were granted. Without names, all adopted nodes\n" +
			"are reverted, and those that got the image because they were created later. Running pods are not affected.",
		Example: "  refractctl liqo revert\n" +
			"  refractctl liqo revert milan",
		ValidArgsFunction: access.CompleteVirtualNodes,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, nodes []string) error {
			return inTime(cmd, access, nodes, timeout, func(ctx context.Context, o *liqo.Options) error { return o.Revert(ctx) })
		}),
	}
	command.Flags().DurationVar(&timeout, "timeout", adoptTimeout, "how long to wait")
	return command
}

func inTime(cmd *cobra.Command, access *invocation.Access, nodes []string, timeout time.Duration, do func(context.Context, *liqo.Options) error) error {
	o, err := liqoOptions(access, nodes, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	err = invocation.RunWithin(cmd.Context(), timeout, func(ctx context.Context) error { return do(ctx, o) })
	for _, vn := range o.Changed() {
		invocation.ResultOf(cmd).AddObject("", "VirtualNode", vn.Namespace, vn.Name)
	}
	return err
}

// countErrors returns an error if any finding has the level Error.
func countErrors(found []doctor.Finding) error {
	errors := 0
	for _, f := range found {
		if f.Level == doctor.Error {
			errors++
		}
	}
	if errors == 0 {
		return nil
	}
	return invocation.FindingsError(fmt.Errorf("errors were found: %d", errors))
}

// printFindings prints the findings of a check, as a table or in the format of -o.
func printFindings(out io.Writer, output *invocation.Output, found []doctor.Finding) error {
	if !output.IsTable() {
		return output.PrintValue(out, "Findings", &struct {
			Findings []doctor.Finding `json:"findings"`
		}{found})
	}
	return invocation.PrintTable(out, "LEVEL\tSUBJECT\tFINDING", found, func(f doctor.Finding) []string { return []string{string(f.Level), f.Subject, f.Message} })
}
