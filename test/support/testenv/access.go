// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"net"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/refract-project/refract/test/support/testenv/internal/pki"
)

// Config returns a client configuration for a cluster administrator, without client-side throttling. It is a copy,
// which the caller may change.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig returns the path of the administrator's kubeconfig. The file exists until Stop.
func (c *Cluster) Kubeconfig() string { return c.path("admin.conf") }

// ConfigFor returns a client configuration for a user, with a client certificate that the cluster's CA has signed.
// RBAC determines the user's permissions.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.ca.Issue(pki.Subject{Name: user, Orgs: groups})
	if err != nil {
		return nil, err
	}
	config := c.anonymous()
	config.CertData, config.KeyData = cert, key
	return config, nil
}

// KubeconfigFor writes a kubeconfig for the user that does not refer to other files.
func (c *Cluster) KubeconfigFor(path, user string, groups ...string) error {
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return err
	}
	return c.writeKubeconfig(path, user, config)
}

// componentKubeconfig writes a kubeconfig to the state folder, for a component that runs next to the control plane.
func (c *Cluster) componentKubeconfig(name, user string, groups ...string) error {
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return err
	}
	config.Host = c.Server()
	return c.writeKubeconfig(c.path(name), user, config)
}

// ServiceAccountKubeconfig writes a kubeconfig for an existing ServiceAccount, with a token that is valid for a day.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, path, namespace, name string) error {
	config, err := c.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return err
	}
	return c.writeKubeconfig(path, name, config)
}

func (c *Cluster) writeKubeconfig(path, user string, config *rest.Config) error {
	name := c.opts.Name
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s, %w", user, err)
	}
	return nil
}

// ServiceAccountConfig returns a client configuration for an existing ServiceAccount, with a token that is valid for
// a day.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	clients, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, err
	}
	seconds := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token of the service account %s/%s, %w", namespace, name, err)
	}
	config := c.anonymous()
	config.BearerToken = token.Status.Token
	return config, nil
}

// anonymous returns a client configuration without an identity. Its rate is negative, which disables client-side
// throttling.
func (c *Cluster) anonymous() *rest.Config {
	return &rest.Config{Host: c.server(), TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.CertPEM}, QPS: -1}
}

// CA returns the PEM certificate of the cluster's CA, which has signed the API server's certificate.
func (c *Cluster) CA() []byte { return append([]byte(nil), c.ca.CertPEM...) }

// IssueServing returns a certificate and its key, in PEM. The API server accepts the certificate when it calls a
// kubelet or a webhook. For a kubelet, cn must be "system:node:<node>" and orgs must be "system:nodes".
func (c *Cluster) IssueServing(cn string, orgs []string, ips []net.IP, dns []string) (certPEM, keyPEM []byte, err error) {
	return c.ca.Issue(pki.Subject{Name: cn, Orgs: orgs, IPs: ips, DNS: dns})
}
