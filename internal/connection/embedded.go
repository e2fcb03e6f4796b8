// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// OutsideError is returned for another party's kubeconfig that needs more than the credentials embedded in it.
type OutsideError struct {
	// Field is the name of the field in the kubeconfig, such as tokenFile.
	Field string
	// Problem describes the effect of the field. Remedy describes the alternative.
	Problem, Remedy string
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("the kubeconfig %s: %s", e.Problem, e.Remedy)
}

// RequireEmbedded checks a context of another party's kubeconfig. It returns an OutsideError if the context needs more
// than embedded credentials, or if the certificate of its API server is not verified. Otherwise the kubeconfig could
// run commands in this process, send local files to its author, or route requests through a proxy. An empty context
// means the current context. RequireEmbedded reads nothing except config.
func RequireEmbedded(config *clientcmdapi.Config, context string) error {
	cluster, user := &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}
	chosen := config.Contexts[cmp.Or(context, config.CurrentContext)]
	if chosen == nil {
		// Like client-go, use the cluster and the user without a name.
		chosen = &clientcmdapi.Context{}
	}
	if found := config.Clusters[chosen.Cluster]; found != nil {
		cluster = found
	}
	if found := config.AuthInfos[chosen.AuthInfo]; found != nil {
		user = found
	}
	return cmp.Or(requireEmbeddedUser(user), requireVerifiedCluster(cluster))
}

func requireEmbeddedUser(user *clientcmdapi.AuthInfo) error {
	const remedy = "use a client certificate or a token that is embedded in the kubeconfig"
	switch {
	case user.Exec != nil:
		return &OutsideError{"exec", fmt.Sprintf("runs a command, exec %.100q", user.Exec.Command), remedy}
	case user.AuthProvider != nil:
		return &OutsideError{"auth-provider", fmt.Sprintf("uses the auth-provider %.100q", user.AuthProvider.Name), remedy}
	case user.TokenFile != "":
		return namesFile("tokenFile", "token", user.TokenFile)
	case user.ClientCertificate != "":
		return namesFile("client-certificate", "client-certificate-data", user.ClientCertificate)
	case user.ClientKey != "":
		return namesFile("client-key", "client-key-data", user.ClientKey)
	case user.Impersonate != "", user.ImpersonateUID != "", len(user.ImpersonateGroups) > 0, len(user.ImpersonateUserExtra) > 0:
		return &OutsideError{"as", "impersonates another user (as, as-uid, as-groups or as-user-extra)", "use the credentials of that user"}
	}
	return nil
}

func requireVerifiedCluster(cluster *clientcmdapi.Cluster) error {
	switch {
	case cluster.CertificateAuthority != "":
		return namesFile("certificate-authority", "certificate-authority-data", cluster.CertificateAuthority)
	case cluster.InsecureSkipTLSVerify:
		return &OutsideError{"insecure-skip-tls-verify", "sets insecure-skip-tls-verify, so that any server could answer", "remove it, and put the certificate authority into certificate-authority-data"}
	case cluster.ProxyURL != "":
		return &OutsideError{"proxy-url", fmt.Sprintf("sets the proxy %.100q, proxy-url", cluster.ProxyURL), "remove it; if this side needs a proxy, set it in the environment variable HTTPS_PROXY of the process"}
	case cluster.Server == "":
		return nil // client-go reports that the server is missing
	}
	server, err := url.Parse(cluster.Server)
	if err != nil {
		return errors.New("the server address of the kubeconfig is not a URL: use https://HOST:PORT")
	}
	if server.Scheme != "https" {
		return &OutsideError{"server", fmt.Sprintf("has the server %.100q, which is not https", cluster.Server), "use an https URL, so that requests are encrypted and the server is verified"}
	}
	return nil
}

func namesFile(field, instead, path string) error {
	return &OutsideError{field, fmt.Sprintf("names a file, %s %.200q", field, path), "put its content into " + instead}
}
