// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// requestTimeout bounds one request to the API server.
const requestTimeout = 15 * time.Second

// clusterAccess says which cluster is meant.
type clusterAccess struct {
	kubeconfig, context string
}

func (a *clusterAccess) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; by default $KUBECONFIG or ~/.kube/config")
	flags.StringVar(&a.context, "context", "", "context of the kubeconfig; by default its current one")
}

// client returns one that reads and writes directly.
func (a *clusterAccess) client() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no way to the cluster: check --kubeconfig, --context and $KUBECONFIG (%w)", err)
	}
	config.Timeout, config.QPS = requestTimeout, -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, core.AddToScheme, offloading.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	return c, nil
}

// explain adds the remedy to errors that a newcomer meets first.
func explain(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster does not know this kind: install Refract's CRDs first, for instance with its Helm chart (%w)", err)
	}
	return err
}

// list fills the given lists.
func list(ctx context.Context, c client.Client, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := c.List(ctx, l); err != nil {
			return fmt.Errorf("listing %T, %w", l, explain(err))
		}
	}
	return nil
}
