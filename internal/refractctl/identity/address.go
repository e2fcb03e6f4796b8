// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/redirect"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// answerTimeout limits how long the provider may take to respond at the address that the consumer will use.
const answerTimeout = 10 * time.Second

// newAccountBackoff is the backoff for the first request with new credentials. This request is retried, because another
// API server of the same cluster may learn of a new ServiceAccount a moment later.
var newAccountBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 3}

// Address is the address at which the consumer reaches the API server of its provider.
type Address struct {
	Consumer, Provider *cluster.Side
	// ChosenURL is the address that the user has set. If it is empty, the address in the provider's kubeconfig is used.
	ChosenURL string
	// IsUnchecked means that refractctl does not send requests to ChosenURL.
	IsUnchecked bool
}

// FlagName returns the name of the flag that sets the address.
func (a *Address) FlagName() string {
	if a.Consumer.IsAbsent() { // the flag of the command for invitations has no prefix
		return "--api-server-url"
	}
	return "--remote-api-server-url"
}

// URL returns the address.
func (a *Address) URL() string { return cmp.Or(a.ChosenURL, a.Provider.Config.Host) }

// Check returns an error if the address does not lead the consumer to the provider, but to itself, to another cluster,
// or nowhere.
func (a *Address) Check(ctx context.Context) error {
	server, err := connection.ParseServer(a.URL())
	if err != nil {
		shown := a.URL()[strings.LastIndex(a.URL(), "@")+1:] // the part after the credentials
		return fmt.Errorf("the API server of %s is %q: it %w, give one with %s", a.Provider.Name, shown, err, a.FlagName())
	}
	if err := errors.Join(a.checkHost(ctx, server), a.checkProxy(server)); err != nil {
		return err
	}
	ca, err := a.readAuthority()
	if err != nil || a.ChosenURL == "" || a.IsUnchecked {
		return err
	}
	if err := a.requireAnswer(ctx, ca); err != nil || !a.Provider.IsInvited() {
		return err
	}
	// Provider.Config comes from the invitation. It contains the consumer's token, with which the access can be tested.
	config := rest.CopyConfig(a.Provider.Config)
	config.Host = a.ChosenURL
	return a.requireAccess(ctx, config)
}

// checkHost returns an error for malformed addresses, and for addresses that always refer to the local machine. A
// loopback address that the user has set is accepted, because both clusters may run on the same machine.
func (a *Address) checkHost(ctx context.Context, server *url.URL) error {
	chosen := a.ChosenURL != ""
	isUseless := func(address netip.Addr) bool {
		if chosen {
			return address.IsUnspecified() || address.IsMulticast()
		}
		return ipmap.Reserved(address.String())
	}
	addresses := a.resolve(ctx, strings.ToLower(strings.TrimSuffix(server.Hostname(), ".")))
	if len(addresses) == 0 || slices.ContainsFunc(addresses, func(address netip.Addr) bool { return !isUseless(address) }) {
		return nil
	}
	return fmt.Errorf("the API server of %s is at %s, which pods of %s cannot reach: set an address that they can reach with %s",
		a.Provider.Name, server.Host, a.Consumer.Name, a.FlagName())
}

// resolve returns the addresses of a host according to this computer's resolver. It returns no addresses if the host
// cannot be resolved.
func (a *Address) resolve(ctx context.Context, host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}
	}
	// These names are reserved for the local machine (RFC 6761), regardless of the resolver. Docker Desktop uses
	// ".docker.internal" for the machine where it runs.
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".docker.internal") {
		return []netip.Addr{netip.IPv6Loopback()}
	}
	if a.IsUnchecked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the connection will show whether the host can be reached
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return addresses
}

// checkProxy returns an error for an address that this computer reaches through a proxy. The consumer would connect to
// the address directly: its kubeconfig must not contain a proxy, and its pods do not have this computer's environment.
// If the address is not checked from this computer, a proxy in the environment does not matter.
func (a *Address) checkProxy(server *url.URL) error {
	if a.Provider.Config.Proxy != nil && a.ChosenURL == "" {
		proxy, err := a.Provider.Config.Proxy(&http.Request{URL: server})
		if err != nil || proxy == nil {
			return err
		}
		return fmt.Errorf("the kubeconfig of %s reaches its API server through %s (proxy-url), which pods of %s do not use: set the address that they can reach directly with %s, "+
			"together with --skip-url-check if this computer cannot reach it", a.Provider.Name, proxy.Redacted(), a.Consumer.Name, a.FlagName())
	}
	if a.IsUnchecked {
		return nil
	}
	// This library function reads the same variables as http.ProxyFromEnvironment, which client-go uses.
	switch proxy, err := httpproxy.FromEnvironment().ProxyFunc()(server); {
	case err != nil:
		return fmt.Errorf("reading the proxy in the environment variable HTTPS_PROXY, %w", err)
	case proxy != nil:
		return fmt.Errorf("this computer reaches the API server of %s at %s through %s (HTTPS_PROXY), which pods of %s do not use: add %s to NO_PROXY, or, "+
			"if this computer reaches it only through the proxy and the pods reach it directly, set --skip-url-check. If they do not reach it, set another address with %s",
			a.Provider.Name, server.Host, proxy.Redacted(), a.Consumer.Name, server.Hostname(), a.FlagName())
	}
	return nil
}

// requireAnswer requests the version of the server at the address, without credentials. The server must have a
// certificate that was issued by the provider's CA.
func (a *Address) requireAnswer(ctx context.Context, ca []byte) error {
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: a.Provider.Config.ServerName}, Timeout: answerTimeout}
	redirect.Refuse(config)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", a.ChosenURL, err)
	}
	defer httpClient.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.ChosenURL, "/")+"/version", nil)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", a.ChosenURL, err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return a.explainSilence(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil // a server that requires authentication has responded, too
	case http.StatusOK:
		if info := (&version.Info{}); json.NewDecoder(response.Body).Decode(info) == nil && info.GitVersion != "" {
			return nil
		}
	}
	return fmt.Errorf("%s=%s: the server there is not an API server (GET /version: %s): set the address of the API server of %s",
		a.FlagName(), a.ChosenURL, response.Status, a.Provider.Name)
}

// explainSilence returns an error that describes why the address does not respond, and the remedy.
func (a *Address) explainSilence(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the message already contains the method and the address
	}
	var untrusted *tls.CertificateVerificationError
	var misnamed x509.HostnameError
	switch {
	case errors.As(err, &misnamed):
		return fmt.Errorf("%s=%s: the certificate there is for another name (%w): use a name or an address in the certificate, or set tls-server-name in the kubeconfig of %s",
			a.FlagName(), a.ChosenURL, err, a.Provider.Name)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%s=%s: another server than %s answers there, its certificate is not signed by the certificate authority in the kubeconfig (%w): "+
			"set the address of %s, or use a kubeconfig with the certificate authority of that address", a.FlagName(), a.ChosenURL, a.Provider.Name, err, a.Provider.Name)
	}
	return fmt.Errorf("%s=%s: the API server of %s does not answer there (%w): correct the address, or open the firewall. "+
		"If %s can reach it and this computer cannot, set --skip-url-check", a.FlagName(), a.ChosenURL, a.Provider.Name, err, a.Consumer.Name)
}

// requireAccess returns an error if the consumer's credentials are not accepted at the address. This happens if another
// cluster has certificates from the same CA, or if a gateway accepts only its own tokens.
func (a *Address) requireAccess(ctx context.Context, config *rest.Config) error {
	config.Timeout = answerTimeout
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	err = retry.OnError(newAccountBackoff, apierrors.IsUnauthorized, func() error {
		_, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err) && a.ChosenURL == "":
		return fmt.Errorf("the server at %s rejects the credentials that %s has just issued to %s: a gateway, such as the one of Rancher or Teleport, may accept only its own tokens. "+
			"Set the address of the API server itself with %s", config.Host, a.Provider.Name, a.Consumer.Name, a.FlagName())
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s=%s: another cluster answers there, or a gateway that accepts only its own tokens: it rejects the credentials that %s issued to %s. Set the address of the API server of %s itself",
			a.FlagName(), config.Host, a.Provider.Name, a.Consumer.Name, a.Provider.Name)
	}
	return fmt.Errorf("%s=%s: using the credentials of %s there, %w", a.FlagName(), config.Host, a.Consumer.Name, err)
}

// CheckKubeconfig tests a new kubeconfig of the consumer at the address that the consumer will use.
func (a *Address) CheckKubeconfig(ctx context.Context, kubeconfig []byte) error {
	if a.IsUnchecked {
		return nil
	}
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s, %w", a.Consumer.Name, err)
	}
	return a.requireAccess(ctx, config)
}
