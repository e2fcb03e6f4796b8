// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
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
)

// answerPatience limits how long the provider may take to answer at the address for the consumer.
const answerPatience = 10 * time.Second

// serverFlag returns the flag that sets the address of the provider for the consumer.
func (o *Options) serverFlag() string {
	if o.Consumer.Client == nil { // for an invitation
		return "--api-server-url"
	}
	return "--remote-api-server-url"
}

// checkServer refuses an address of the provider that leads the consumer to itself, to another cluster, or nowhere.
func (o *Options) checkServer(ctx context.Context) error {
	server, err := url.Parse(o.server())
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return fmt.Errorf("the API server of %s is %q: it must be an https URL, give one with %s", o.Provider.Name, o.server(), o.serverFlag())
	}
	if err := errors.Join(o.checkHost(ctx, server), o.checkProxy(server)); err != nil {
		return err
	}
	ca, err := o.authority()
	if err != nil || o.APIServerURL == "" || o.UncheckedURL {
		return err
	}
	if err := o.answers(ctx, ca); err != nil || o.Provider.invitation == nil {
		return err
	}
	config := rest.CopyConfig(o.Provider.Config) // contains the consumer's token
	config.Host = o.APIServerURL
	return o.opens(ctx, config)
}

// checkHost refuses addresses that mean the machine that uses them, and malformed ones. A loopback address that the
// user chose is accepted, because both clusters may run on one machine.
func (o *Options) checkHost(ctx context.Context, server *url.URL) error {
	chosen := o.APIServerURL != ""
	isUseless := func(address netip.Addr) bool {
		if chosen {
			return address.IsUnspecified() || address.IsMulticast()
		}
		return ipmap.Reserved(address.String())
	}
	addresses := o.resolve(ctx, strings.ToLower(strings.TrimSuffix(server.Hostname(), ".")))
	if len(addresses) == 0 || slices.ContainsFunc(addresses, func(address netip.Addr) bool { return !isUseless(address) }) {
		return nil
	}
	return fmt.Errorf("the API server of %s is at %s, which pods of %s cannot reach: set an address that they can reach with %s",
		o.Provider.Name, server.Host, o.Consumer.Name, o.serverFlag())
}

// resolve returns the addresses of a host as this computer resolves it, or none if it cannot be resolved.
func (o *Options) resolve(ctx context.Context, host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}
	}
	// RFC 6761 reserves these names for the local machine, regardless of the resolver. Docker Desktop uses
	// ".docker.internal" for the machine that it runs on.
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".docker.internal") {
		return []netip.Addr{netip.IPv6Loopback()}
	}
	if o.UncheckedURL {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the connection shows whether the host can be reached
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return addresses
}

// checkProxy refuses an address from a kubeconfig that is reached through a proxy. The consumer would connect
// directly, because a kubeconfig for another party must not name a proxy.
func (o *Options) checkProxy(server *url.URL) error {
	if o.Provider.Config.Proxy == nil || o.APIServerURL != "" {
		return nil
	}
	proxy, err := o.Provider.Config.Proxy(&http.Request{URL: server})
	if err != nil || proxy == nil {
		return err
	}
	return fmt.Errorf("the kubeconfig of %s reaches its API server through %s (proxy-url), which pods of %s do not use: set the address that they can reach directly with %s, "+
		"together with --skip-url-check if this computer cannot reach it", o.Provider.Name, proxy.Redacted(), o.Consumer.Name, o.serverFlag())
}

// answers requests the version at the address, without credentials. The server there must have a certificate of the
// provider's CA.
func (o *Options) answers(ctx context.Context, ca []byte) error {
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: o.Provider.Config.ServerName}, Timeout: answerPatience}
	redirect.Refuse(config)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", o.APIServerURL, err)
	}
	defer httpClient.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.APIServerURL, "/")+"/version", nil)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", o.APIServerURL, err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return o.unanswered(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil // the server requires authentication
	case http.StatusOK:
		if info := (&version.Info{}); json.NewDecoder(response.Body).Decode(info) == nil && info.GitVersion != "" {
			return nil
		}
	}
	return fmt.Errorf("%s=%s: the server there is not an API server (GET /version: %s): set the address of the API server of %s",
		o.serverFlag(), o.APIServerURL, response.Status, o.Provider.Name)
}

// unanswered returns an error that describes the problem with an address, and its remedy.
func (o *Options) unanswered(ctx context.Context, err error) error {
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
			o.serverFlag(), o.APIServerURL, err, o.Provider.Name)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%s=%s: another server than %s answers there, its certificate is not signed by the certificate authority in the kubeconfig (%w): "+
			"set the address of %s, or use a kubeconfig with the certificate authority of that address", o.serverFlag(), o.APIServerURL, o.Provider.Name, err, o.Provider.Name)
	}
	return fmt.Errorf("%s=%s: the API server of %s does not answer there (%w): correct the address, or open the firewall. "+
		"If %s can reach it and this computer cannot, set --skip-url-check", o.serverFlag(), o.APIServerURL, o.Provider.Name, err, o.Consumer.Name)
}

// opens fails unless the consumer's credentials are accepted at its address of the provider. They are refused by
// another cluster whose certificates have the same CA, and by a gateway that accepts only its own tokens.
func (o *Options) opens(ctx context.Context, config *rest.Config) error {
	config.Timeout = answerPatience
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	// Another API server of the same cluster may observe a new ServiceAccount a moment later.
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 3}
	err = retry.OnError(backoff, apierrors.IsUnauthorized, func() error {
		_, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err) && o.APIServerURL == "":
		return fmt.Errorf("the server at %s rejects the credentials that %s has just issued to %s: a gateway, such as the one of Rancher or Teleport, may accept only its own tokens. "+
			"Set the address of the API server itself with %s", config.Host, o.Provider.Name, o.Consumer.Name, o.serverFlag())
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s=%s: another cluster answers there, or a gateway that accepts only its own tokens: it rejects the credentials that %s issued to %s. Set the address of the API server of %s itself",
			o.serverFlag(), config.Host, o.Provider.Name, o.Consumer.Name, o.Provider.Name)
	}
	return fmt.Errorf("%s=%s: using the credentials of %s there, %w", o.serverFlag(), config.Host, o.Consumer.Name, err)
}

// checkKubeconfig tests a new kubeconfig of the consumer at the address where it will be used.
func (o *Options) checkKubeconfig(ctx context.Context, kubeconfig []byte) error {
	if o.UncheckedURL {
		return nil
	}
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s, %w", o.Consumer.Name, err)
	}
	return o.opens(ctx, config)
}
