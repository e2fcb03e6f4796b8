// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/internal/doctor"
)

func newDoctorCommand(access *clusterAccess) *cobra.Command {
	var output *output
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong in a cluster, and what to do about it",
		Long: "Examine the installation, peered clusters, virtual nodes, certificates and extended namespaces of a cluster. Each finding comes\n" +
			"with its remedy. Nothing is changed. The exit code is 1 if there is an error.",
		Example: "  refractctl doctor\n" +
			"  refractctl doctor --context=milan -o json",
		Args: cobra.NoArgs,
		RunE: explained(func(cmd *cobra.Command, _ []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			c, err := access.client(requestTimeout)
			if err != nil {
				return err
			}
			found := (&doctor.Patient{Client: c, Now: time.Now()}).Examine(cmd.Context())
			err = printFindings(cmd.OutOrStdout(), output, found)
			errors := 0
			for _, f := range found {
				if f.Level == doctor.Error {
					errors++
				}
			}
			if err == nil && errors > 0 {
				err = fmt.Errorf("errors were found: %d", errors)
			}
			return err
		}),
	}
	output = addOutput(command, "", "")
	return command
}
