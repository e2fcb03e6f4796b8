// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/refractctl/connectivity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// NewTestCommand returns the command "test".
func NewTestCommand(access *invocation.Access) *cobra.Command {
	t := &connectivityTest{access: access}
	command := &cobra.Command{
		Use:   "test [VIRTUAL-NODE]",
		Short: "Test a virtual node: a pod, its logs, DNS, and traffic in both directions",
		Long: "Offload a pod to a virtual node, and check that its logs can be read, that commands run in it, and that it and a pod of this\n" +
			"cluster resolve each other's Services and reach each other by IP address. The test uses a temporary namespace, which is deleted at\n" +
			"the end. The exit code is 3 if a check fails.",
		Example: "  refractctl test\n" +
			"  refractctl test milan --context=rome -o json",
	}
	t.addTo(command)
	return command
}

// NewNetworkTestCommand returns the command "network test".
func NewNetworkTestCommand(access *invocation.Access) *cobra.Command {
	t := &connectivityTest{access: access, networkOnly: true}
	command := &cobra.Command{
		Use:   "test [VIRTUAL-NODE]",
		Short: "Check that the pods of this cluster and those on a virtual node reach each other",
		Long: "Start a pod in this cluster and one on a virtual node, and connect each to the IP address of the other. The test uses a\n" +
			"temporary namespace, which is deleted at the end. The exit code is 3 if a check fails.",
		Example: "  refractctl network test milan",
	}
	t.addTo(command)
	return command
}

// connectivityTest contains the settings that the two commands have in common.
type connectivityTest struct {
	access                *invocation.Access
	networkOnly           bool
	image                 string
	timeout, checkTimeout time.Duration
	output                *invocation.Output
}

func (t *connectivityTest) addTo(command *cobra.Command) {
	command.Args = cobra.MaximumNArgs(1)
	command.ValidArgsFunction = t.access.CompleteVirtualNodes
	command.RunE = invocation.ExplainErrors(t.runTest)
	flags := command.Flags()
	flags.StringVar(&t.image, "image", "", "image of the test pods, by default that of the controller manager; both clusters must be able to pull it without an image pull secret")
	flags.DurationVar(&t.timeout, "timeout", 2*time.Minute, "how long the remote namespace may take to exist, and each pod to be ready")
	flags.DurationVar(&t.checkTimeout, "check-timeout", 30*time.Second, "how long to retry a check before it fails")
	t.output = invocation.AddOutput(command, "", "")
}

func (t *connectivityTest) runTest(cmd *cobra.Command, args []string) error {
	if err := t.output.ValidateFormat(); err != nil {
		return err
	}
	c, err := t.access.NewClient(invocation.RequestTimeout)
	if err != nil {
		return err
	}
	config, err := t.access.RestConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	node, err := chooseNode(cmd.Context(), c, args)
	if err != nil {
		return err
	}
	if t.image == "" {
		installed, err := release.Find(cmd.Context(), c)
		if err != nil {
			return err
		}
		t.image = installed.Image
	}
	isTranslated, err := podnetwork.HasGateways(cmd.Context(), c, node)
	if apierrors.IsForbidden(err) {
		// Whoever may not see the network may still test it: the way through a Service works with and without gateways.
		isTranslated, err = true, nil
	}
	if err != nil {
		return err
	}
	results, err := (&connectivity.Test{
		Client: c, Config: config, VirtualNode: node, Image: t.image, NetworkOnly: t.networkOnly, IsTranslated: isTranslated, PodTimeout: t.timeout, CheckTimeout: t.checkTimeout,
		Progress: invocation.PrintTo(cmd.ErrOrStderr()),
	}).Run(cmd.Context())
	if len(results) == 0 {
		return err
	}
	// The results are printed first, because they are useful even if the cleanup has failed.
	return errors.Join(t.printResults(cmd, results), err)
}

// printResults prints the results. It returns an error if any check has failed.
func (t *connectivityTest) printResults(cmd *cobra.Command, results []connectivity.Result) (err error) {
	if !t.output.IsTable() {
		err = t.output.PrintValue(cmd.OutOrStdout(), "Results", &struct {
			Results []connectivity.Result `json:"results"`
		}{results})
	} else {
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		invocation.PrintSection(table, "RESULT\tCHECK\tMESSAGE", results, func(r connectivity.Result) []string {
			return []string{map[bool]string{true: "OK", false: "Error"}[r.OK], r.Check, r.Message}
		})
		err = table.Flush()
	}
	failed := 0
	for _, r := range results {
		if !r.OK {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = invocation.FindingsError(fmt.Errorf("checks failed: %d", failed))
	}
	return err
}

// chooseNode returns the virtual node that the argument names, or the only virtual node of the cluster.
func chooseNode(ctx context.Context, c client.Client, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	nodes := &offloading.VirtualNodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return "", fmt.Errorf("listing virtual nodes, %w", err)
	}
	switch len(nodes.Items) {
	case 0:
		return "", errors.New("there is no virtual node: create one with refractctl peer")
	case 1:
		return nodes.Items[0].Name, nil
	}
	names := make([]string, len(nodes.Items))
	for i := range nodes.Items {
		names[i] = nodes.Items[i].Name
	}
	return "", fmt.Errorf("there are several virtual nodes: name one of %v", names)
}
