// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Uninstall removes the release. With withCRDs it also removes the CRDs, unless they belong to Liqo. It fails without
// removing anything in three cases: the cluster has another release instead; objects in the cluster need the
// controllers, which is reported as an InUseError; or user objects would be deleted with the CRDs. With force, it
// removes a release even if it is in use, but does not remove the CRDs.
func (i *Installer) Uninstall(ctx context.Context, withCRDs, force bool) error {
	config, err := i.newConfiguration()
	if err != nil {
		return err
	}
	there, err := isDeployed(config, i.Name)
	if err != nil {
		return err
	}
	if err := i.checkRemovable(ctx, there, withCRDs); err != nil {
		return err
	}
	err = i.checkUnused(ctx, withCRDs)
	if used := (*InUseError)(nil); force && errors.As(err, &used) {
		i.Progress.Report("warning: %v", err)
		// The CRDs stay, because deleting them would delete their objects.
		withCRDs, err = false, nil
	}
	if err != nil {
		return err
	}
	if there {
		helm := action.NewUninstall(config)
		helm.DryRun, helm.WaitStrategy, helm.Timeout = i.DryRun, kube.HookOnlyStrategy, helmTimeout
		i.Progress.Report("removing release %s from namespace %s", i.Name, i.Namespace)
		if _, err := helm.Run(i.Name); err != nil {
			return fmt.Errorf("removing release %s/%s, %w", i.Namespace, i.Name, err)
		}
	} else {
		i.Progress.Report("there is no release %s in namespace %s, and the cluster has no other installation of Refract", i.Name, i.Namespace)
	}
	if withCRDs {
		return i.deleteCRDs(ctx)
	}
	return nil
}

// checkRemovable fails if this release does not exist although Refract is installed, or if the CRDs are to be removed
// although another installation uses them. Otherwise, the command would appear to succeed, or would break the other
// installation. The argument there reports whether the release exists.
func (i *Installer) checkRemovable(ctx context.Context, there, withCRDs bool) error {
	found, err := listManagers(ctx, i.Client)
	if err != nil {
		return err
	}
	for n := range found {
		manager := &found[n]
		name, namespace := manager.Labels[InstanceLabel], manager.Namespace
		switch same := name == i.Name && namespace == i.Namespace; {
		// The controller manager is already being removed.
		case manager.DeletionTimestamp != nil:
		case same && !there:
			return fmt.Errorf("the controller manager %s/%s is not of a Helm release: remove it with the tool that has installed it", namespace, manager.Name)
		case !there:
			return fmt.Errorf("there is no release %s in namespace %s, Refract is installed as release %s in namespace %s: run the command with -n %s --release %s", i.Name, i.Namespace, name, namespace, namespace, name)
		case !same && withCRDs:
			return fmt.Errorf("release %s in namespace %s needs the CRDs, too: run the command without --crds", name, namespace)
		}
	}
	return nil
}

// deleteCRDs deletes the CRDs of the chart, and the network CRDs that belong to a release of the chart. If Liqo is
// installed, the CRDs belong to Liqo and are kept.
func (i *Installer) deleteCRDs(ctx context.Context) error {
	beside, err := i.crdExists(ctx, LiqoDefinition)
	if err != nil {
		return err
	}
	if beside {
		i.Progress.Report("the CRDs belong to Liqo, left unchanged")
		return nil
	}
	chart, err := loadChart()
	if err != nil {
		return err
	}
	crds, err := definitionsOf(chart)
	if err != nil {
		return err
	}
	ofNetwork, err := i.listNetworkCRDs(ctx)
	if err != nil {
		return err
	}
	crds = append(crds, ofNetwork...)
	options := []client.DeleteOption{}
	if i.DryRun {
		options = append(options, client.DryRunAll)
	}
	i.Progress.Report("deleting %d CRDs", len(crds))
	for _, crd := range crds {
		if err := i.Client.Delete(ctx, crd, options...); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting CRD %s, %w", crd.GetName(), err)
		}
	}
	return nil
}
