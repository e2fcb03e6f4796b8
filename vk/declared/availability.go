// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isUnavailable reports whether this cluster has no declared plugins for this virtual kubelet. It returns false if they
// could be read before. If the permission to read them is missing, the API server does not reveal whether they are
// defined, but discovery does. If they are defined, nothing is reflected without them.
func (f *Follower) isUnavailable(ctx context.Context, err error, waited time.Duration) bool {
	switch {
	case f.options.WereRead.Load():
		return false
	case apierrors.IsNotFound(err):
		f.log.Info("ReflectionPlugins are not defined in this cluster, so only the plugins of the folder run", "err", err)
		return true
	case !apierrors.IsForbidden(err):
		return false
	}
	isDefined, discoveryErr := f.arePluginsDefined(ctx)
	switch {
	case discoveryErr == nil && !isDefined:
		f.log.Info("ReflectionPlugins are not defined in this cluster, so only the plugins of the folder run")
		return true
	case waited < f.options.PermissionGrace:
		return false
	case apierrors.IsForbidden(discoveryErr):
		f.reportMissingPermission(err,
			"only the plugins of the folder run, because this virtual kubelet may not discover whether ReflectionPlugins are defined")
		return true
	case discoveryErr == nil:
		f.reportMissingPermission(err, "nothing is reflected, because objects would cross without the declared plugins")
	}
	return false
}

// arePluginsDefined reports whether the API server serves ReflectionPlugins. By default, all authenticated users may
// discover this.
func (f *Follower) arePluginsDefined(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	served, err := f.discovery.ServerResourcesForGroupVersion(pluginsResource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == pluginsResource.Resource }), nil
}

// reportMissingPermission reports once that reading ReflectionPlugins is forbidden, with the effect.
func (f *Follower) reportMissingPermission(err error, effect string) {
	if f.isReported {
		return
	}
	f.isReported = true
	const remedy = "upgrade the roles of virtual kubelets, so that they may get, list and watch reflectionplugins and pluginrevisions"
	f.log.Warn("ReflectionPlugins may not be read", "meanwhile", effect, "remedy", remedy, "err", err)
	f.options.Unavailable(err.Error() + "; " + effect + ": " + remedy)
}
