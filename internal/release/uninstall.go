// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// InUseError lists the objects that removing the controllers would orphan.
type InUseError struct{ Uses []string }

func (e *InUseError) Error() string {
	return "something is still offloaded:\n  " + strings.Join(e.Uses, "\n  ")
}

// uses are the kinds whose objects need the controllers, with the remedy.
var uses = []struct {
	kind   string
	remedy func(object client.Object) string
}{
	{"NamespaceOffloading", func(o client.Object) string {
		return "unoffload it with: refractctl unoffload namespace " + o.GetNamespace()
	}},
	{"VirtualNode", func(o client.Object) string {
		return "remove it with refractctl unpeer, or with: refractctl delete virtualnode " + o.GetName()
	}},
	{"NamespaceMap", func(client.Object) string {
		return "namespaces are offloaded to or from a peer: end the peering with refractctl unpeer"
	}},
	{"ShadowPod", func(client.Object) string { return "a consumer runs pods here: end its peering with refractctl unpeer" }},
}

// Uninstall removes the release, and with definitions the CRDs, too, unless they are Liqo's. It fails with InUseError, and removes
// nothing, while something is offloaded from this cluster or to it; with force it removes the release all the same, and leaves the CRDs.
func (i *Installer) Uninstall(ctx context.Context, withCRDs, force bool) error {
	err := i.unused(ctx)
	if used := (*InUseError)(nil); force && errors.As(err, &used) {
		i.say("warning: %v", err)
		withCRDs, err = false, nil // with the CRDs the objects would go
	}
	if err != nil {
		return err
	}
	config, err := i.configuration()
	if err != nil {
		return err
	}
	there, err := deployed(config, i.Name)
	if err != nil {
		return err
	}
	if there {
		helm := action.NewUninstall(config)
		helm.DryRun, helm.WaitStrategy, helm.Timeout = i.DryRun, kube.HookOnlyStrategy, helmTimeout
		i.say("removing release %s from namespace %s", i.Name, i.Namespace)
		if _, err := helm.Run(i.Name); err != nil {
			return fmt.Errorf("removing release %s/%s, %w", i.Namespace, i.Name, err)
		}
	} else {
		i.say("there is no release %s in namespace %s", i.Name, i.Namespace)
	}
	if withCRDs {
		return i.deleteCRDs(ctx)
	}
	return nil
}

// unused fails while there are objects that need the controllers.
func (i *Installer) unused(ctx context.Context) error {
	var found []string
	for _, use := range uses {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(offloading.GroupVersion.WithKind(use.kind + "List"))
		err := i.Client.List(ctx, list)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %ss, %w", use.kind, err)
		}
		for n := range min(len(list.Items), mostShown) {
			object := &list.Items[n]
			found = append(found, fmt.Sprintf("%s %s/%s: %s", use.kind, object.Namespace, object.Name, use.remedy(object)))
		}
		if more := len(list.Items) - mostShown; more > 0 {
			found = append(found, fmt.Sprintf("and %d more of kind %s", more, use.kind))
		}
	}
	if len(found) > 0 {
		return &InUseError{Uses: found}
	}
	return nil
}

// mostShown objects of a kind are listed.
const mostShown = 5

func (i *Installer) deleteCRDs(ctx context.Context) error {
	if beside, err := i.exists(ctx, liqoCRD); err != nil || beside {
		i.say("the CRDs belong to Liqo, left unchanged")
		return err
	}
	chart, err := load()
	if err != nil {
		return err
	}
	crds, err := definitions(chart)
	if err != nil {
		return err
	}
	options := []client.DeleteOption{}
	if i.DryRun {
		options = append(options, client.DryRunAll)
	}
	i.say("deleting %d CRDs", len(crds))
	for _, crd := range crds {
		if err := i.Client.Delete(ctx, crd, options...); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting CRD %s, %w", crd.GetName(), err)
		}
	}
	return nil
}
