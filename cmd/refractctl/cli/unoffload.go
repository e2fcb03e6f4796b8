// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

func newUnoffloadCommand(access *clusterAccess) *cobra.Command {
	var selector string
	var timeout time.Duration
	command := &cobra.Command{
		Use:     "namespace NAME...",
		Aliases: []string{"namespaces", "ns"},
		Short:   "Stop offloading namespaces",
		Long: "Stop offloading namespaces, and wait until it is done. Their remote namespaces are deleted,\n" +
			"with everything in them.",
		Example: "  refractctl unoffload namespace shop\n" +
			"  refractctl unoffload namespace shop -o json",
		ValidArgsFunction: access.completeExtended,
		RunE: explained(func(cmd *cobra.Command, names []string) error {
			names = access.named(names, selector)
			if err := errors.Join(validNamespaces(names, selector), validTimeout(timeout)); err != nil {
				return err
			}
			c, err := access.client(requestTimeout)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if names, err = chooseNamespaces(ctx, c, names, selector); err != nil {
				return err
			}
			applied, problems := attempt(names, func(name string) error { return unoffload(ctx, c, name) })
			done, waited := attempt(applied, func(name string) error {
				return awaitOne(ctx, cmd.ErrOrStderr(), "namespace", name, timeout, func(ctx context.Context) (bool, string, error) { return withdrawn(ctx, c, name) })
			})
			for _, name := range done {
				resultOf(cmd).add("", "Namespace", "", name)
			}
			return errors.Join(problems, waited)
		}),
	}
	command.Flags().StringVar(&selector, "ns-selector", "", "unoffload the namespaces with these labels, instead of naming them")
	command.Flags().DurationVar(&timeout, "timeout", 120*time.Second, "how long to wait")
	return command
}

func unoffload(ctx context.Context, c client.Client, namespace string) error {
	if err := mustExist(ctx, c, namespace); err != nil {
		return err
	}
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
	if err := client.IgnoreNotFound(c.Delete(ctx, nso)); err != nil {
		return fmt.Errorf("deleting NamespaceOffloading in %s, %w", namespace, err)
	}
	return nil
}
