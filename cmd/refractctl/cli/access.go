// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/cmdutil"
)

// requestTimeout bounds one request to the API server.
const requestTimeout = 15 * time.Second

// clusterAccess says which cluster is meant.
type clusterAccess struct {
	kubeconfig, context string
}

func (a *clusterAccess) addFlags(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; by default $KUBECONFIG or ~/.kube/config")
	flags.StringVar(&a.context, "context", "", "context of the kubeconfig; by default its current one")
	completeFlagBy(command, "context", a.completeContexts)
}

func (a *clusterAccess) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	return rules
}

// client returns one that reads and writes directly; each request may take as
// long as timeout.
func (a *clusterAccess) client(timeout time.Duration) (client.Client, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules(), overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no kubeconfig is found: give --kubeconfig, or set $KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("no way to the cluster: check --kubeconfig, --context and $KUBECONFIG (%w)", err)
	}
	config.Timeout, config.QPS = timeout, -1
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

// explained makes the errors of run explain themselves.
func explained(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return cmdutil.Explain(run(cmd, args)) }
}

// list fills the given lists.
func list(ctx context.Context, c client.Client, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := c.List(ctx, l); err != nil {
			return fmt.Errorf("listing %s, %w", kindsOf(l), err)
		}
	}
	return nil
}

// kindsOf names what a list holds: "ForeignClusters".
func kindsOf(l client.ObjectList) string {
	name := fmt.Sprintf("%T", l)
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "List") + "s"
}
