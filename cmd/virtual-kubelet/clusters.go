// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/vk/kubeletapi"
)

const (
	// kubeconfigRetry while the provider's kubeconfig is not there yet.
	kubeconfigRetry = 5 * time.Second
	// unknownVersion is shown when the API server does not tell its version.
	unknownVersion = "v1.25.0"
)

// localConfig returns the access to this cluster.
func (o *options) localConfig() (*rest.Config, error) {
	if o.homeKubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no way to this cluster: give --home-kubeconfig or $KUBECONFIG, or run in a pod (%w)", err)
		}
		return o.limited(config), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.homeKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--home-kubeconfig=%s cannot be used: %w", o.homeKubeconfig, err)
	}
	return o.limited(config), nil
}

// limited sets what the flags say about clients.
func (o *options) limited(config *rest.Config) *rest.Config {
	config.QPS, config.Burst, config.Timeout = o.clientQPS, o.clientBurst, o.clientTimeout
	config.UserAgent = "refract-virtual-kubelet/" + cmdutil.Version()
	return config
}

// connect opens the way to the provider, without asking it for anything.
func (k *kubelet) connect(ctx context.Context) (_ *connection.Connection, kubeconfig []byte, err error) {
	var source []byte
	if k.foreignKubeconfig != "" {
		if source, err = os.ReadFile(k.foreignKubeconfig); err != nil {
			return nil, nil, fmt.Errorf("--foreign-kubeconfig: %w", err)
		}
	} else {
		if source, err = k.secret().Await(ctx, kubeconfigRetry); err != nil {
			return nil, nil, err
		}
		kubeconfig = source
	}
	config, err := connection.Parse(source)
	if err != nil {
		return nil, nil, fmt.Errorf("--foreign-kubeconfig=%s: %w", k.foreignKubeconfig, err)
	}
	provider, err := connection.New(k.limited(config))
	return provider, kubeconfig, err
}

func (k *kubelet) secret() connection.Secret {
	return connection.Secret{Client: k.client, Namespace: k.tenantNamespace, Name: k.foreignSecret}
}

// renew puts new credentials to use while everything runs.
func (a *active) renew(ctx context.Context) func([]byte) {
	return func(kubeconfig []byte) {
		config, err := connection.Parse(kubeconfig)
		if err == nil {
			err = a.provider.Update(a.limited(config))
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "The changed kubeconfig of the provider is not usable, going on with the former one", "secret", a.foreignSecret)
			return
		}
		log.FromContext(ctx).Info("The credentials for the provider were renewed", "secret", a.foreignSecret)
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
			log.FromContext(ctx).Info("IP resources may not be read: addresses of third clusters are not translated")
			return false, nil
		}
	}
	return true, nil
}

// clientAuthority returns who signs the certificates of callers of the kubelet API.
func (a *active) clientAuthority(ctx context.Context) (dynamiccertificates.CAContentProvider, error) {
	if a.clientCA != "" {
		file, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", a.clientCA)
		if err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		go file.Run(ctx, 1)
		return file, nil
	}
	published, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
		metav1.NamespaceSystem, "extension-apiserver-authentication", "client-ca-file", a.client)
	if err != nil {
		return nil, fmt.Errorf("following the client CA of this cluster (give --client-ca-file if it publishes none), %w", err)
	}
	go published.Run(ctx, 1)
	return published, nil
}

// certificate returns what callers of the kubelet API are shown.
func (a *active) certificate(ctx context.Context) (kubeletapi.CertificateSource, error) {
	if a.tlsCertFile != "" {
		return kubeletapi.CertificateFromFiles(ctx, a.tlsCertFile, a.tlsKeyFile)
	}
	ip := net.ParseIP(a.nodeIP)
	signer, signed := kubeletapi.SignerOf(a.certificateType)
	if !signed {
		return kubeletapi.SelfSignedCertificate(a.nodeName, ip, clock.RealClock{}), nil
	}
	return kubeletapi.CertificateFromSigner(ctx, a.client, signer, a.nodeName, a.certificateDir, ip)
}
