// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/remotedata"
)

// NewUnoffloadCommand returns the command "unoffload namespace".
func NewUnoffloadCommand(access *invocation.Access) *cobra.Command {
	var selector string
	var timeout time.Duration
	u := &unoffloading{}
	command := &cobra.Command{
		Use:     "namespace NAME...",
		Aliases: []string{"namespaces", "ns"},
		Short:   "Stop offloading namespaces",
		Long: "Stop offloading namespaces, and wait until it is done. Their remote namespaces are deleted,\n" +
			"with everything in them. Namespaces with data of volumes are not unoffloaded without --delete-data, and never while the\n" +
			"reclaim policy of these volumes is Retain.",
		Example: "  refractctl unoffload namespace shop\n" +
			"  refractctl unoffload namespace shop --dry-run     # name the volumes with data, and change nothing\n" +
			"  refractctl unoffload namespace shop --delete-data # delete that of volumes with the reclaim policy Delete\n" +
			"  refractctl unoffload namespace shop -o json",
		ValidArgsFunction: access.CompleteExtended,
		RunE: invocation.ExplainErrors(func(cmd *cobra.Command, names []string) error {
			names = access.NamedNamespaces(names, selector)
			if err := validNamespaces(names, selector); err != nil {
				return err
			}
			c, err := access.NewClient(invocation.RequestTimeout)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if names, err = chooseNamespaces(ctx, c, names, selector); err != nil {
				return err
			}
			if err := u.findVolumes(ctx, c, cmd.ErrOrStderr()); err != nil {
				return err
			}
			applied, problems := invocation.AttemptEach(names, func(name string) error { return u.unoffloadNamespace(ctx, c, cmd.ErrOrStderr(), name) })
			if u.dryRun {
				return problems
			}
			done, waited := invocation.AttemptEach(applied, func(name string) error {
				return invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "namespace", name, timeout, func(ctx context.Context) (bool, string, error) { return u.isWithdrawn(ctx, c, name) })
			})
			for _, name := range done {
				invocation.ResultOf(cmd).AddObject("", "Namespace", "", name)
			}
			return errors.Join(problems, waited)
		}),
	}
	command.Flags().StringVar(&selector, "ns-selector", "", "unoffload the namespaces with these labels, instead of naming them")
	command.Flags().DurationVar(&timeout, "timeout", 120*time.Second, "how long to wait")
	command.Flags().BoolVar(&u.dryRun, "dry-run", false, "check, and change nothing")
	invocation.AddDeleteDataFlag(command, &u.deleteData)
	return command
}

// unoffloading contains the flags of "unoffload namespace", and the volumes that have data on providers.
type unoffloading struct {
	deleteData, dryRun bool
	volumes            remotedata.Volumes
}

func (u *unoffloading) findVolumes(ctx context.Context, c client.Client, out io.Writer) (err error) {
	u.volumes, err = invocation.RemoteVolumes(ctx, c, out)
	return err
}

// unoffloadNamespace deletes the NamespaceOffloading of a namespace. In a dry run, it only prints this. It fails if
// data would be lost without a confirmation.
func (u *unoffloading) unoffloadNamespace(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	if err := mustExist(ctx, c, namespace); err != nil {
		return err
	}
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
	err := c.Get(ctx, client.ObjectKeyFromObject(nso), nso)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	volumes := u.volumes.In(namespace)
	if err := invocation.RefuseData(out, namespace, volumes, u.deleteData); err != nil {
		return err
	}
	if u.dryRun {
		fmt.Fprintf(out, "%s: would be unoffloaded; its remote namespace %s would be deleted\n", namespace, nso.Status.RemoteNamespaceName)
		return nil
	}
	// Claims that only the provider knows may also have data, so the confirmation is always recorded.
	if u.deleteData {
		if err := invocation.PatchTo(ctx, c, nso, map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.DeleteDataAnnotation: "true"}}}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, nso)); err != nil {
		return fmt.Errorf("deleting NamespaceOffloading in %s, %w", namespace, err)
	}
	return nil
}

// mustExist returns an error if the namespace does not exist. Otherwise, a misspelled name would look like a namespace
// without anything to do.
func mustExist(ctx context.Context, c client.Client, namespace string) error {
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err != nil {
		return fmt.Errorf("getting namespace %s, %w", namespace, err)
	}
	return nil
}

func (u *unoffloading) isWithdrawn(ctx context.Context, c client.Client, namespace string) (bool, string, error) {
	nso := &offloading.NamespaceOffloading{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, nso)
	if apierrors.IsNotFound(err) {
		return true, "on this cluster only", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("getting NamespaceOffloading in %s, %w", namespace, err)
	}
	if nso.DeletionTimestamp != nil && !u.deleteData {
		if err := remotedata.RefuseHeld(ctx, c, offloading.NamespaceOffloadingKind, namespace, nso.Name, nso.DeletionTimestamp.Time, invocation.ConfirmFlag); err != nil {
			return false, "", fmt.Errorf("%s: %w", namespace, err)
		}
	}
	if nso.Status.OffloadingPhase != offloading.TerminatingOffloadingPhaseType {
		return false, invocation.NoController, nil
	}
	return false, progress.Offloading(nso), nil
}
