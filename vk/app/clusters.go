// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rewind"
)

const (
	// kubeconfigRetry while the provider's kubeconfig is not there yet.
	kubeconfigRetry = 5 * time.Second
	// unknownVersion is shown when the API server does not tell its version.
	unknownVersion = "v1.25.0"
)

// localClient returns the access to this cluster.
func (o *options) localClient() (*rest.Config, kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if source, path := o.homeKubeconfigFile(); path != "" {
		if config, err = connection.ParseFile(path); err != nil {
			return nil, nil, fmt.Errorf("%s=%s cannot be used: %w", source, path, err)
		}
	} else if config, err = rest.InClusterConfig(); err != nil {
		return nil, nil, fmt.Errorf("no way to this cluster: give --home-kubeconfig or $KUBECONFIG, or run in a pod (%w)", err)
	}
	config = o.limited(config)
	rewind.Wrap(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for this cluster, %w", err)
	}
	return config, client, nil
}

// limited sets what the flags say about clients.
func (o *options) limited(config *rest.Config) *rest.Config {
	config.QPS, config.Burst, config.Timeout = o.clientQPS, o.clientBurst, o.clientTimeout
	config.UserAgent = "refract-virtual-kubelet/" + cmdutil.Version()
	return config
}

// connect opens the way to the provider, without asking it for anything. It waits
// for a Secret that is usable; kubeconfig is nil without one.
func (k *kubelet) connect(ctx context.Context) (provider *connection.Connection, kubeconfig []byte, err error) {
	if k.foreignKubeconfig != "" {
		provider, err = k.connectByFile()
		return provider, nil, err
	}
	k.ready.waitFor("the kubeconfig of the provider was not read yet")
	warn := k.warnKubeconfig(ctx, "The kubeconfig of the provider is not usable, waiting for one that is")
	kubeconfig, err = k.secret().Await(ctx, kubeconfigRetry, func(kubeconfig []byte) (err error) {
		provider, err = k.open(kubeconfig)
		return err
	}, func(err error) {
		k.ready.waitFor(err.Error())
		warn(err)
	})
	return provider, kubeconfig, err
}

// connectByFile uses --foreign-kubeconfig.
func (o *options) connectByFile() (*connection.Connection, error) {
	config, err := connection.ParseFile(o.foreignKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--foreign-kubeconfig=%s: %w", o.foreignKubeconfig, err)
	}
	return connection.New(o.limited(config), o.foreignAnswer.Value())
}

// open the provider with a kubeconfig from a Secret.
func (o *options) open(kubeconfig []byte) (*connection.Connection, error) {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	return connection.New(o.limited(config), o.foreignAnswer.Value())
}

func (k *kubelet) secret() connection.Secret {
	return connection.Secret{Client: k.client, Namespace: k.tenantNamespace, Name: k.foreignSecret}
}

// unusableKubeconfigReason of the Events about the way to the provider.
const unusableKubeconfigReason = "UnusableKubeconfig"

// warnKubeconfig warns of what is wrong with the Secret.
func (k *kubelet) warnKubeconfig(ctx context.Context, consequence string) func(error) {
	return func(err error) {
		log.FromContext(ctx).Error(err, consequence)
		k.report.warn(unusableKubeconfigReason, err.Error())
	}
}

// renew puts new credentials to use while everything runs.
func (a *active) renew(ctx context.Context) func([]byte) error {
	return func(kubeconfig []byte) error {
		config, err := connection.Parse(kubeconfig)
		if err != nil {
			return err
		}
		if err := a.provider.Update(a.limited(config)); err != nil {
			return err
		}
		log.FromContext(ctx).Info("The credentials for the provider were renewed", "secret", a.foreignSecret)
		return nil
	}
}

// serverVersion of this cluster, which the node reports as the kubelet's.
func (a *active) serverVersion(ctx context.Context) string {
	version, err := a.client.Discovery().ServerVersion()
	if err != nil {
		log.FromContext(ctx).Info("The API server does not tell its version", "instead", unknownVersion, "reason", err.Error())
		return unknownVersion
	}
	return version.GitVersion
}

// noTranslationReason of the Event about IPs that may not be read.
const noTranslationReason = "AddressesNotTranslated"

// mayFollowIPs reports whether this cluster has IP resources that may be read.
func (a *active) mayFollowIPs(ctx context.Context) (bool, error) {
	const group, version = "ipam.liqo.io", "v1alpha1"
	if _, err := a.client.Discovery().ServerResourcesForGroupVersion(group + "/" + version); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("asking this cluster for %s, %w", group, err)
	}
	for _, verb := range []string{"list", "watch"} {
		review, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: "ips"}},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking whether IP resources may be read, %w", err)
		}
		if !review.Status.Allowed {
			message := "ips.ipam.liqo.io may not be listed and watched, so addresses of other clusters' pods are not translated: " +
				"bind the ClusterRole of virtual kubelets to its ServiceAccount, and restart the virtual kubelet"
			log.FromContext(ctx).Info(message)
			a.report.warn(noTranslationReason, message)
			return false, nil
		}
	}
	return true, nil
}
