// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
)

// RemoteCluster contains the flags of commands that also access a second cluster.
type RemoteCluster struct {
	context, file string
	trusted       bool
	// user and groups are the identity to impersonate.
	user   string
	groups []string
}

// AddFlags adds the flags to a command. ofContext is the help of --remote-context, and ofFile the help of
// --remote-kubeconfig.
func (r *RemoteCluster) AddFlags(command *cobra.Command, access *Access, ofContext, ofFile string) {
	flags := command.Flags()
	flags.StringVar(&r.context, "remote-context", "", ofContext)
	flags.StringVar(&r.file, "remote-kubeconfig", "", ofFile)
	flags.BoolVar(&r.trusted, "trust-remote-kubeconfig", false, "the file of --remote-kubeconfig is your own: it may run commands, name files, set a proxy and skip verification; an invitation never may")
	flags.StringVar(&r.user, "remote-as", "", "user to impersonate in the cluster of --remote-context or --remote-kubeconfig, as --as does in the other")
	flags.StringArrayVar(&r.groups, "remote-as-group", nil, "group to impersonate there, with --remote-as (may be repeated)")
	CompleteFlagBy(command, "remote-context", access.completeContexts)
}

// IsGiven reports whether the user has selected a second cluster.
func (r *RemoteCluster) IsGiven() bool { return r.context != "" || r.file != "" }

// ValidateFlags returns a usage error if the flags contradict each other.
func (r *RemoteCluster) ValidateFlags() error {
	if r.trusted && r.file == "" {
		return UsageError(errors.New("--trust-remote-kubeconfig is about the file of --remote-kubeconfig, which is not given: omit it"))
	}
	if !r.IsGiven() && (r.user != "" || len(r.groups) > 0) {
		return UsageError(errors.New("--remote-as and --remote-as-group are about the cluster of --remote-context or --remote-kubeconfig, which is not given: omit them"))
	}
	if r.user == "" && len(r.groups) > 0 {
		return UsageError(errors.New("--remote-as-group needs --remote-as: Kubernetes impersonates groups of a user only"))
	}
	return nil
}

// RemotePeer returns the second cluster. Its context is in the given kubeconfig or, if there is none, in the
// kubeconfig of this cluster. It does not connect to any cluster.
func (a *Access) RemotePeer(of *RemoteCluster) (*cluster.Cluster, error) {
	if err := of.ValidateFlags(); err != nil {
		return nil, err
	}
	remote := NewAccess()
	remote.contextFlag, remote.command = "remote-context", a.command
	if of.file != "" {
		remote.fileFlag, remote.foreign = "remote-kubeconfig", !of.trusted
	}
	*remote.Flags.KubeConfig, *remote.Flags.Context = cmp.Or(of.file, *a.Flags.KubeConfig), of.context
	*remote.Flags.Timeout = *a.Flags.Timeout
	*remote.Flags.Impersonate, *remote.Flags.ImpersonateGroup = of.user, of.groups
	remoteCluster, err := remote.PeeringCluster()
	if err != nil {
		return nil, err
	}
	invited, err := remote.kubeconfigInvitation()
	if err != nil {
		return nil, err
	}
	remoteCluster.Invitation = invited
	return remoteCluster, nil
}

// checkOrigin returns an error if a kubeconfig of another party needs more than its own content. It checks every
// kubeconfig with an invitation, regardless of the flag or variable that names it, and the file of
// --remote-kubeconfig, unless the user trusts it.
func (a *Access) checkOrigin(raw *clientcmdapi.Config) error {
	effective, name := a.effectiveConfig(raw)
	invited := invitation.IsIn(effective, name)
	if !invited && !a.foreign {
		return nil
	}
	err := connection.RequireEmbedded(effective, name)
	switch {
	case err == nil:
		return nil
	case invited:
		return fmt.Errorf("%s is an invitation and cannot be used: %w; ask for another invitation (refractctl generate peering-user)", a.kubeconfigSource(), err)
	}
	return fmt.Errorf("%s cannot be used: %w; if the file is your own, add its context to your kubeconfig and name it with --remote-context, or set --trust-remote-kubeconfig", a.kubeconfigSource(), err)
}

// effectiveConfig returns a copy of a kubeconfig, and the name of the context in it whose cluster and user the flags
// select.
func (a *Access) effectiveConfig(raw *clientcmdapi.Config) (config *clientcmdapi.Config, context string) {
	config, context = raw.DeepCopy(), cmp.Or(*a.Flags.Context, raw.CurrentContext)
	chosen := &clientcmdapi.Context{}
	if found := config.Contexts[context]; found != nil {
		chosen = found
	}
	chosen.Cluster, chosen.AuthInfo = cmp.Or(*a.Flags.ClusterName, chosen.Cluster), cmp.Or(*a.Flags.AuthInfoName, chosen.AuthInfo)
	config.Contexts[context] = chosen
	return config, context
}

// kubeconfigInvitation returns the invitation in the kubeconfig, or nil if there is none.
func (a *Access) kubeconfigInvitation() (*invitation.Invitation, error) {
	config, err := a.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", a.kubeconfigSource(), err)
	}
	return invitation.Parse(&config, *a.Flags.Context)
}
