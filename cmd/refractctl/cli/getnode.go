// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

func newGetVirtualNodeCommand(access *invocation.Access) *cobra.Command {
	var output *invocation.Output
	command := &cobra.Command{
		Use:     "virtualnode [NAME...]",
		Aliases: []string{"virtualnodes", "vn"},
		Short:   "Show virtual nodes",
		Example: "  refractctl get virtualnode\n" +
			"  refractctl get virtualnode milan -o json",
		ValidArgsFunction: access.CompleteVirtualNodes,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, names []string) error {
			if err := output.ValidateFormat(); err != nil {
				return err
			}
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			nodes, err := gatherNodes(cmd.Context(), c)
			if err != nil {
				return err
			}
			all := namesOf(nodes, func(n virtualNodeInfo) string { return n.Name })
			for _, name := range names {
				if !slices.Contains(all, name) {
					return fmt.Errorf("there is no virtual node %s: this cluster has %s", name, cmp.Or(strings.Join(all, ", "), "none"))
				}
			}
			shown := &info{VirtualNodes: slices.DeleteFunc(nodes, func(n virtualNodeInfo) bool { return len(names) > 0 && !slices.Contains(names, n.Name) })}
			switch {
			case output.IsTable():
				return shown.printNodes(cmd.OutOrStdout(), output.GivenFormat() == invocation.Wide)
			case output.GivenFormat() == "name":
				return shown.printNames(cmd.OutOrStdout())
			}
			return output.PrintValue(cmd.OutOrStdout(), "VirtualNodes", &struct {
				Items []virtualNodeInfo `json:"items"`
			}{shown.VirtualNodes})
		}),
	}
	output = invocation.AddOutput(command, "", "", invocation.Wide)
	return command
}
