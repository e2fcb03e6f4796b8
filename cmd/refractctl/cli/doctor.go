// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/doctor"
)

func newDoctorCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	var remote invocation.RemoteCluster
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose a cluster, and show remedies",
		Long: "Examine the installation of a cluster, with versions, CRDs and rights, its peered clusters and the networks to them, virtual nodes,\n" +
			"certificates, clocks and offloaded namespaces. With --remote-context both clusters are compared, and the peering is examined from\n" +
			"both sides. Each finding includes a remedy. Nothing is changed. The exit code is 3 if there is an error.",
		Example: "  refractctl doctor\n" +
			"  refractctl doctor --context=rome --remote-context=milan\n" +
			"  refractctl doctor --context=milan -o json",
		Args: cobra.NoArgs,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(output.ValidateFormat(), remote.ValidateFlags()); err != nil {
				return err
			}
			cluster, err := access.PeeringCluster()
			if err != nil {
				return err
			}
			patient := &doctor.Examination{Client: cluster.Client, Now: time.Now(), Cluster: cluster}
			if remote.IsGiven() {
				if patient.Peer, err = access.RemotePeer(&remote); err != nil {
					return fmt.Errorf("the other cluster: %w", err)
				}
			}
			found := patient.Examine(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err // the findings would be about the interruption
			}
			if err := printFindings(cmd.OutOrStdout(), output, found); err != nil {
				return err
			}
			return countErrors(found)
		}),
	}
	output = invocation.AddOutput(command, "", "")
	remote.AddFlags(command, access, "context of a cluster that this one is joined with", "kubeconfig of that cluster, by default that of this one")
	return command
}
