// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// pullSecrets checks that the image pull Secrets of virtual kubelets exist and match their sources. An outdated copy
// causes no problem until a virtual kubelet is started on another node.
func (p *Examination) pullSecrets(ctx context.Context, installed *release.Installation) error {
	kubelets := &appsv1.DeploymentList{}
	if err := p.Client.List(ctx, kubelets, client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent}); err != nil {
		return err
	}
	used := sets.New[client.ObjectKey]()
	for i := range kubelets.Items {
		for _, reference := range kubelets.Items[i].Spec.Template.Spec.ImagePullSecrets {
			used.Insert(client.ObjectKey{Namespace: kubelets.Items[i].Namespace, Name: reference.Name})
		}
	}
	byName := func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(used), byName) {
		if err := p.pullSecret(ctx, key, client.ObjectKey{Namespace: installed.Namespace, Name: key.Name}); err != nil {
			return err
		}
	}
	return nil
}

func (p *Examination) pullSecret(ctx context.Context, key, source client.ObjectKey) error {
	subject := "Secret " + key.String()
	copied, original := &corev1.Secret{}, &corev1.Secret{}
	err := p.Client.Get(ctx, key, copied)
	if apierrors.IsNotFound(err) {
		p.addFinding(subject, Warning, "it is missing: images of virtual kubelets are pulled without it. Create Secret %s if there is none, and copy it with refractctl peer", source)
		return nil
	}
	if err != nil {
		return err
	}
	err = p.Client.Get(ctx, source, original)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case err == nil && cluster.IsOurs(copied) && !maps.EqualFunc(original.Data, copied.Data, bytes.Equal):
		p.addFinding(subject, Warning, "Secret %s has changed since it was copied from there: copy it again with refractctl peer, or images of virtual kubelets may not be pulled", source)
	default:
		p.addFinding(subject, OK, "images of virtual kubelets are pulled with it")
	}
	return nil
}
