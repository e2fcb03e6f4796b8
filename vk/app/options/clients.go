// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/vk/reflection"
)

// LocalClient returns a configuration and a client for this cluster. wrap wraps the transport of every client that is
// created from the configuration.
func (o *Options) LocalClient(wrap transport.WrapperFunc) (*rest.Config, kubernetes.Interface, error) {
	source, path := o.HomeKubeconfigFile()
	config, err := connection.LoadLocal("--home-kubeconfig", source, path)
	if err != nil {
		return nil, nil, err
	}
	config = o.Limited(config)
	config.Wrap(wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for this cluster, %w", err)
	}
	return config, client, nil
}

// Limited sets the timeout, QPS, burst and user agent from the flags in config, and returns config.
func (o *Options) Limited(config *rest.Config) *rest.Config {
	config.QPS, config.Burst, config.Timeout = o.ClientQPS, o.ClientBurst, o.ClientTimeout
	config.UserAgent = wire.VirtualKubeletProcess + "/" + cmdutil.Version()
	return config
}

// ConnectByFile connects to the provider with the kubeconfig file from --foreign-kubeconfig.
func (o *Options) ConnectByFile() (*connection.Connection, error) {
	config, err := connection.ParseFile(o.ForeignKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--foreign-kubeconfig=%s: %w", o.ForeignKubeconfig, err)
	}
	return connection.New(o.Limited(config), connection.Limits{Bytes: o.ForeignAnswer.Value()})
}

// Connect connects to the provider with a kubeconfig from a Secret.
func (o *Options) Connect(kubeconfig []byte) (*connection.Connection, error) {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	return connection.New(o.Limited(config), connection.Limits{Bytes: o.ForeignAnswer.Value()})
}

// Classes returns the ingress and load balancer classes of the provider that the flags enable.
func (o *Options) Classes() (known reflection.Classes) {
	if o.Ingress {
		known.Ingress = o.IngressClass
	}
	if o.LoadBalancer {
		known.LoadBalancer = o.LoadBalancerClass
	}
	return known
}
