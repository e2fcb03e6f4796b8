// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

func newUnoffloadCommand(access *clusterAccess) *cobra.Command {
	parent := &cobra.Command{Use: "unoffload", Short: "Withdraw something from other clusters", Args: cobra.NoArgs}
	var selector string
	var timeout time.Duration
	command := &cobra.Command{
		Use:     "namespace NAME...",
		Aliases: []string{"namespaces", "ns"},
		Short:   "Withdraw namespaces from other clusters",
		Long: "Withdraw namespaces from the other clusters and wait until it is done. Their twins are deleted there,\n" +
			"with everything in them.",
		ValidArgsFunction: access.completeNamespaces,
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := access.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if names, err = chooseNamespaces(ctx, c, names, selector); err != nil {
				return err
			}
			for _, name := range names {
				if err := unoffload(ctx, c, name); err != nil {
					return err
				}
			}
			return awaitWithdrawn(ctx, c, cmd.ErrOrStderr(), names, timeout)
		},
	}
	command.Flags().StringVar(&selector, "ns-selector", "", "withdraw the namespaces with these labels, instead of naming them")
	command.Flags().DurationVar(&timeout, "timeout", 120*time.Second, "how long to wait")
	parent.AddCommand(command)
	return parent
}

func unoffload(ctx context.Context, c client.Client, namespace string) error {
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
	if err := client.IgnoreNotFound(c.Delete(ctx, nso)); err != nil {
		return fmt.Errorf("deleting NamespaceOffloading in %s, %w", namespace, explain(err))
	}
	return nil
}
