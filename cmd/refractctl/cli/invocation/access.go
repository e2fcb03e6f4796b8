// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/redirect"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/scheme"
)

// RequestTimeout limits one request to the API server.
const RequestTimeout = 15 * time.Second

// Access is the access to a cluster, which is selected with the same flags as in kubectl.
type Access struct {
	Flags *genericclioptions.ConfigFlags
	// contextFlag and fileFlag are the names of the flags that select the context and the kubeconfig.
	contextFlag, fileFlag string
	// foreign is true if another party may have written the kubeconfig.
	foreign bool
	// command is the context of the running command, or nil before it runs. When it ends, all requests end.
	command context.Context //nolint:containedctx // the libraries that use the flags pass no context
}

// NewAccess returns an Access whose flags have no values yet.
func NewAccess() *Access {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir, flags.DisableCompression = nil, nil // both flags only affect discovery, which is not used
	access := &Access{Flags: flags, contextFlag: "context", fileFlag: "kubeconfig"}
	// WrapConfigFn is needed for libraries that create their clients from the flags.
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		redirect.Refuse(config)
		access.endWhenInterrupted(config)
		return config
	}
	return access
}

// AddFlags adds the flags to a command.
func (a *Access) AddFlags(command *cobra.Command) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.Flags.AddFlags(flags)
	flags.VisitAll(markFromKubectl)
	command.PersistentFlags().AddFlagSet(flags)
	CompleteFlagBy(command, "context", a.completeContexts)
	CompleteFlagBy(command, "namespace", a.CompleteNamespaces)
}

// NamespaceFlag returns the value of --namespace, or "" if it is not set.
func (a *Access) NamespaceFlag() string { return *a.Flags.Namespace }

// NamedNamespaces returns the namespaces in the arguments. If there are no arguments and no selector, it returns the
// namespace of --namespace.
func (a *Access) NamedNamespaces(names []string, selector string) []string {
	if namespace := a.NamespaceFlag(); namespace != "" && selector == "" && len(names) == 0 {
		return []string{namespace}
	}
	return names
}

// NewClient returns a client without a cache. Each request is limited by timeout, unless --request-timeout is set.
func (a *Access) NewClient(timeout time.Duration) (client.Client, error) {
	config, err := a.RestConfig()
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = timeout
	}
	config.QPS = -1
	kinds, err := scheme.New()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	return c, nil
}

// RestConfig returns the client configuration for the cluster. Its errors name the source of the kubeconfig. If there
// is no kubeconfig, the in-cluster configuration of the pod is used.
func (a *Access) RestConfig() (*rest.Config, error) {
	loader, source := a.Flags.ToRawKubeConfigLoader(), a.kubeconfigSource()
	found, err := anyReadable(loader.ConfigAccess().GetLoadingPrecedence())
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be used: %w", source, err)
	case !found && source != clientcmd.RecommendedHomeFile:
		return nil, fmt.Errorf("%s: there is no such file, check the path", source)
	}
	raw, err := loader.RawConfig()
	if err == nil {
		if err := a.checkOrigin(&raw); err != nil {
			return nil, err
		}
	}
	if err == nil && len(raw.Clusters) == 0 && *a.Flags.APIServer == "" {
		if config, err := rest.InClusterConfig(); err == nil && !found {
			return a.Flags.WrapConfigFn(config), nil
		} else if !found {
			return nil, fmt.Errorf("no kubeconfig found, %s does not exist: set --%s or $KUBECONFIG", source, a.fileFlag)
		}
		return nil, fmt.Errorf("%s names no cluster: set another --%s, or $KUBECONFIG", source, a.fileFlag)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: check it and --%s (%w)", source, a.contextFlag, err)
	}
	if provider := config.AuthProvider; provider != nil {
		if _, err := rest.GetAuthProvider(config.Host, provider, config.AuthConfigPersister); err != nil {
			return nil, fmt.Errorf("%s cannot be used: %w: clients no longer have the auth-provider of this user; %s", source, err, execPluginFor(provider.Name))
		}
	}
	return a.Flags.WrapConfigFn(config), nil
}

// execPluginFor returns the replacement of an auth-provider. Kubernetes 1.26 removed the auth-providers of clouds.
func execPluginFor(authProvider string) string {
	switch authProvider {
	case "azure":
		return "run kubelogin convert-kubeconfig (https://azure.github.io/kubelogin)"
	case "gcp":
		return "install gke-gcloud-auth-plugin, and run gcloud container clusters get-credentials again"
	case "oidc":
		return "set up the exec plugin kubectl oidc-login (https://github.com/int128/kubelogin)"
	}
	return "use an exec plugin, a client certificate or a token"
}

// kubeconfigSource returns the flag or variable that selects the kubeconfig, as it is written on the command line.
func (a *Access) kubeconfigSource() string {
	switch variable := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case *a.Flags.KubeConfig != "":
		return "--" + a.fileFlag + "=" + *a.Flags.KubeConfig
	case variable != "":
		return "$" + clientcmd.RecommendedConfigPathEnvVar + "=" + variable
	}
	return clientcmd.RecommendedHomeFile
}

// anyReadable reports whether any of the files exists. The variable KUBECONFIG may name several files, and some may be
// missing. A malformed file is an error.
func anyReadable(files []string) (found bool, err error) {
	for _, file := range files {
		_, err := clientcmd.LoadFromFile(file)
		switch {
		case err == nil:
			found = true
		case !errors.Is(err, fs.ErrNotExist):
			return false, fmt.Errorf("%s is not a valid kubeconfig, %w", file, err)
		}
	}
	return found, nil
}

// ExplainErrors wraps run so that its errors include an explanation.
func ExplainErrors(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return cmdutil.Explain(run(cmd, args)) }
}

// FillLists reads the objects of the given lists from the cluster.
func FillLists(ctx context.Context, c client.Client, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := c.List(ctx, l); err != nil {
			return fmt.Errorf("listing %s, %w", KindsOf(l), err)
		}
	}
	return nil
}

// KindsOf returns the plural of the kind of the objects in a list, such as "ForeignClusters".
func KindsOf(l client.ObjectList) string {
	name := fmt.Sprintf("%T", l)
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "List") + "s"
}

// PeeringCluster returns the cluster with the clients that a peering needs.
func (a *Access) PeeringCluster() (*cluster.Cluster, error) {
	c, err := a.NewClient(RequestTimeout)
	if err != nil {
		return nil, err
	}
	config, err := a.RestConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = cmp.Or(config.Timeout, RequestTimeout)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	name := *a.Flags.Context
	if raw, err := a.Flags.ToRawKubeConfigLoader().RawConfig(); err == nil && name == "" {
		name = raw.CurrentContext
	}
	return &cluster.Cluster{Name: cmp.Or(name, config.Host), Config: config, Client: c, Clientset: clientset}, nil
}
