// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/accessreview"
	"github.com/refract-project/refract/internal/connection"
)

const (
	// kubeconfigRetryInterval is the delay between attempts to read the provider's kubeconfig while it does not
	// exist.
	kubeconfigRetryInterval = 5 * time.Second
	// unknownVersion is the version that the node shows while the API server does not report one.
	unknownVersion = "v1.25.0"
)

// connectProvider returns a connection to the provider. It sends no request to the provider, but waits until the Secret
// contains a usable kubeconfig. The returned kubeconfig is nil if a flag specifies a kubeconfig file.
func (k *kubelet) connectProvider(ctx context.Context) (provider *connection.Connection, kubeconfig []byte, err error) {
	if k.ForeignKubeconfig != "" {
		provider, err = k.ConnectByFile()
		return provider, nil, err
	}
	k.ready.waitFor("the kubeconfig of the provider has not been read yet")
	warn := k.warnKubeconfig(ctx, "waiting for a valid one")
	kubeconfig, err = k.kubeconfigSecret().Await(ctx, kubeconfigRetryInterval, func(kubeconfig []byte) (err error) {
		provider, err = k.Connect(kubeconfig)
		return err
	}, func(err error) {
		k.ready.waitFor(err.Error())
		warn(err)
	})
	return provider, kubeconfig, err
}

func (k *kubelet) kubeconfigSecret() connection.Secret {
	return connection.Secret{Client: k.client, Namespace: k.TenantNamespace, Name: k.ForeignSecret}
}

// unusableKubeconfigReason is the reason of Events about the kubeconfig of the provider.
const unusableKubeconfigReason = "UnusableKubeconfig"

// warnKubeconfig returns a function that reports an unusable kubeconfig. The text meanwhile describes what the process
// does until the kubeconfig is usable.
func (k *kubelet) warnKubeconfig(ctx context.Context, meanwhile string) func(error) {
	return func(err error) {
		log.FromContext(ctx).Error(err, "The kubeconfig of the provider is invalid", "secret", k.ForeignSecret, "meanwhile", meanwhile)
		k.report.reportWarning(unusableKubeconfigReason, err.Error())
	}
}

// renewCredentials returns a function that applies a renewed kubeconfig without a restart.
func (a *active) renewCredentials(ctx context.Context) func([]byte) error {
	return func(kubeconfig []byte) error {
		config, err := connection.Parse(kubeconfig)
		if err != nil {
			return err
		}
		if err := a.provider.Update(a.Limited(config)); err != nil {
			return err
		}
		log.FromContext(ctx).Info("The credentials for the provider were renewed", "secret", a.ForeignSecret)
		return nil
	}
}

// serverVersion returns the version of this cluster's API server, which the Node shows as its kubelet version.
func (a *active) serverVersion(ctx context.Context) string {
	version, err := a.client.Discovery().ServerVersion()
	if err != nil {
		log.FromContext(ctx).Info("The API server does not report its version", "instead", unknownVersion, "err", err)
		return unknownVersion
	}
	return version.GitVersion
}

// noTranslationReason is the reason of the Event that addresses are not translated, because this process has no
// permission to read IP resources.
const noTranslationReason = "AddressesNotTranslated"

// mayFollowIPs reports whether this cluster has the resource for IPs, and this process is permitted to read it.
func (a *active) mayFollowIPs(ctx context.Context) (bool, error) {
	const group, version = "ipam.liqo.io", "v1alpha1"
	if _, err := a.client.Discovery().ServerResourcesForGroupVersion(group + "/" + version); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("discovering the resources of %s in this cluster, %w", group, err)
	}
	isAllowed := accessreview.Self(a.client.AuthorizationV1())
	for _, verb := range []string{"list", "watch"} {
		allowed, err := isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: "ips"})
		if err != nil {
			return false, fmt.Errorf("reviewing access to ips.ipam.liqo.io, %w", err)
		}
		if !allowed {
			message := "the virtual kubelet may not list and watch ips.ipam.liqo.io, so addresses of other clusters' pods are not translated: " +
				"bind the ClusterRole of virtual kubelets to its ServiceAccount, and restart the virtual kubelet"
			log.FromContext(ctx).Info("Addresses of other clusters' pods are not translated", "message", message)
			a.report.reportWarning(noTranslationReason, message)
			return false, nil
		}
	}
	return true, nil
}
