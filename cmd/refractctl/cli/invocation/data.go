// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/remotedata"
)

// DeleteDataFlag is the name of the flag that confirms the deletion of data.
const DeleteDataFlag = "delete-data"

// ConfirmFlag describes the flag that confirms the deletion of data. It is an argument for remotedata.Volumes.Remedy.
const ConfirmFlag = "run the command again with --" + DeleteDataFlag + " to delete it"

// AddDeleteDataFlag adds the flag that confirms the deletion of data.
func AddDeleteDataFlag(command *cobra.Command, confirmed *bool) {
	command.Flags().BoolVar(confirmed, DeleteDataFlag, false,
		"delete the data of volumes with the reclaim policy Delete that is in the remote namespaces; that of others is never deleted")
}

// RefuseData returns an error if volumes would lose their data. If the user has confirmed the loss, it prints a
// warning that lists the volumes.
func RefuseData(out io.Writer, name string, volumes remotedata.Volumes, confirmed bool) error {
	if held := volumes.Holding(confirmed); len(held) > 0 {
		return fmt.Errorf("%s: nothing was changed, because the data of the volumes %s would be deleted: %s", name, held, held.Remedy(ConfirmFlag))
	}
	if len(volumes) > 0 && confirmed {
		fmt.Fprintf(out, "%s: warning: the data of the volumes %s is deleted\n", name, volumes)
	}
	return nil
}

// RemoteVolumes returns the volumes that have data on providers. If the user may not list volumes, it prints a warning,
// and the controllers alone check them.
func RemoteVolumes(ctx context.Context, c client.Client, out io.Writer) (remotedata.Volumes, error) {
	volumes, err := remotedata.List(ctx, c)
	if apierrors.IsForbidden(err) {
		fmt.Fprintln(out, "warning: you may not list PersistentVolumes. The controllers keep remote namespaces with data, and the NamespaceOffloading or VirtualNode then has the condition "+remotedata.HeldReason)
		return nil, nil
	}
	return volumes, err
}

// RefuseClaims returns an error if remote namespaces of a consumer of this cluster have claims with data.
func RefuseClaims(ctx context.Context, c client.Client, tenant string) error {
	mappings := &offloading.NamespaceMapList{}
	if err := c.List(ctx, mappings, client.InNamespace(tenant)); err != nil {
		return fmt.Errorf("listing NamespaceMaps in namespace %s, %w", tenant, err)
	}
	var held []string
	for i := range mappings.Items {
		for _, status := range mappings.Items[i].Status.CurrentMapping {
			claims := &corev1.PersistentVolumeClaimList{}
			if err := c.List(ctx, claims, client.InNamespace(status.RemoteNamespace)); err != nil {
				return fmt.Errorf("listing PersistentVolumeClaims in namespace %s, %w", status.RemoteNamespace, err)
			}
			for k := range claims.Items {
				if claims.Items[k].Spec.VolumeName != "" {
					held = append(held, client.ObjectKeyFromObject(&claims.Items[k]).String())
				}
			}
		}
	}
	if len(held) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was changed, because the remote namespaces have claims with data: %s. Have the consumer copy it elsewhere, cordon the consumer meanwhile, or %s", strings.Join(held, ", "), ConfirmFlag)
}
