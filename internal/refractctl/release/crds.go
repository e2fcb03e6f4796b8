// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field owner of the objects that this package applies.
const fieldOwner = client.FieldOwner("refractctl")

// LiqoDefinition is a CRD that is part of every installation of Liqo, with or without Liqo's network module, but not of
// this chart.
const LiqoDefinition = "firewallconfigurations.networking.liqo.io"

// DefinitionKind is the kind CustomResourceDefinition.
var DefinitionKind = schema.GroupVersionKind{Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition"}

// applyCRDs creates missing CRDs and updates existing ones. If Liqo is installed, the existing CRDs belong to Liqo,
// and only missing CRDs are created.
func (i *Installer) applyCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	beside, err := i.crdExists(ctx, LiqoDefinition)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if beside {
			there, err := i.crdExists(ctx, crd.GetName())
			if err != nil {
				return err
			}
			if there {
				i.Progress.Report("CRD %s belongs to Liqo, left unchanged", crd.GetName())
				continue
			}
		}
		options := []client.ApplyOption{fieldOwner, client.ForceOwnership}
		if i.DryRun {
			options = append(options, client.DryRunAll)
		}
		before, err := i.readCRD(ctx, crd.GetName())
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		applied := crd.DeepCopy()
		if err := i.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...); err != nil {
			return fmt.Errorf("applying CRD %s, %w", crd.GetName(), err)
		}
		i.reportApplied(before, applied, err == nil)
	}
	if i.DryRun {
		return nil
	}
	for _, crd := range crds {
		if err := i.Progress.Await(ctx, "CRD "+crd.GetName(), func(ctx context.Context) (string, error) { return i.describePending(ctx, crd.GetName()) }); err != nil {
			return err
		}
	}
	return nil
}

// reportApplied reports that a CRD was created or updated. In a dry run, it reports that the CRD would be created or
// updated.
func (i *Installer) reportApplied(before, after *unstructured.Unstructured, existed bool) {
	done := map[bool]string{true: "updated", false: "created"}[existed]
	switch {
	case existed && before.GetGeneration() == after.GetGeneration():
	case i.DryRun:
		i.Progress.Report("CRD %s would be %s", after.GetName(), done)
	default:
		i.Progress.Report("CRD %s was %s", after.GetName(), done)
	}
}

// Definitions returns the names of the CRDs of an installation.
func Definitions() (names []string, err error) {
	chart, err := loadChart()
	if err != nil {
		return nil, err
	}
	crds, err := definitionsOf(chart)
	for _, crd := range crds {
		names = append(names, crd.GetName())
	}
	return names, err
}

func (i *Installer) readCRD(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(DefinitionKind)
	if err := i.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return nil, fmt.Errorf("getting CRD %s, %w", name, err)
	}
	return crd, nil
}

func (i *Installer) crdExists(ctx context.Context, name string) (bool, error) {
	_, err := i.readCRD(ctx, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// describePending returns a message until objects of the kind can be created, and an empty string after that.
func (i *Installer) describePending(ctx context.Context, name string) (missing string, err error) {
	crd, err := i.readCRD(ctx, name)
	if err != nil {
		return "", err
	}
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == string(apiextensionsv1.Established) && c["status"] == "True" {
			return "", nil
		}
	}
	return "it is not established yet", nil
}
