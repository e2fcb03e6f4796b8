// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/vk/app/options"
	"github.com/refract-project/refract/vk/reflection"
)

// apiServerSupport returns how offloaded pods get tokens for this cluster's API server. The modes correspond to Liqo's
// API server support.
func (a *active) apiServerSupport(ctx context.Context) (string, error) {
	logger := log.FromContext(ctx)
	switch {
	case !a.APIServerSupport && a.SupportMode != options.AutoSupport:
		logger.Info("A flag has no effect without --enable-apiserver-support", "flag", "--apiserver-support-mode", "value", a.SupportMode)
		return reflection.SupportDisabled, nil
	case !a.APIServerSupport:
		return reflection.SupportDisabled, nil
	case a.SupportMode != options.AutoSupport:
		return a.SupportMode, nil
	}
	served, err := a.client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		return "", fmt.Errorf("asking this cluster's API server whether it issues tokens (--apiserver-support-mode=%s), %w", options.AutoSupport, err)
	}
	mode := supportBy(served)
	if mode == reflection.SupportLegacy {
		logger.Info("This cluster's API server does not issue tokens on request: reflecting service account token Secrets instead", "mode", mode)
	}
	return mode, nil
}

// supportBy returns the mode for an API server that serves the given resources of the core API.
func supportBy(served *metav1.APIResourceList) string {
	if slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "serviceaccounts/token" }) {
		return reflection.SupportTokenAPI
	}
	return reflection.SupportLegacy
}

// serviceDomain returns the DNS domain of this cluster, which it takes from the issuer of the cluster's tokens. By
// default, the issuer is the name of the API server's Service. If the issuer is another name, the domain is empty.
func (a *active) serviceDomain(ctx context.Context) (string, error) {
	body, err := a.client.Discovery().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the issuer of tokens, %w", err)
	}
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(body, &discovery); err != nil {
		return "", fmt.Errorf("reading the issuer of tokens, %w", err)
	}
	return domainOf(discovery.Issuer), nil
}

// domainOf returns the DNS domain in the name of an issuer that is the Service of the API server, or an empty string
// if the issuer is not this Service.
func domainOf(issuer string) string {
	location, err := url.Parse(issuer)
	if err != nil {
		return ""
	}
	domain, is := strings.CutPrefix(location.Hostname(), "kubernetes.default.svc.")
	if !is || len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return ""
	}
	return domain
}

// apiServer returns the address at which offloaded pods reach this cluster's API server. The address comes from flags
// or from the network. Without an address, pods cannot reach the API server, because its DNS name leads to the
// provider's API server on the provider.
func (a *active) apiServer(ctx context.Context, network bool) reflection.APIServer {
	server := reflection.APIServer{Host: a.HomeAPIServerHost, Port: a.HomeAPIServerPort}
	if server.Host == "" && server.Port == "" {
		server.Port = a.ServicePort
	}
	if a.APIServerSupport && server.Host == "" && !network {
		log.FromContext(ctx).Info("Offloaded pods get tokens but no address of this cluster's API server: set --home-api-server-host and --home-api-server-port")
	}
	if a.APIServerSupport && namesLeadElsewhere(server.Host, server.Port) {
		log.FromContext(ctx).Info("Names such as kubernetes.default lead offloaded pods to port 443 of --home-api-server-host, where this cluster's API server does not listen: let it, or a load balancer, listen there, or have clients use KUBERNETES_SERVICE_PORT",
			"host", server.Host, "port", server.Port)
	}
	if a.APIServerSupport {
		domain, err := a.serviceDomain(ctx)
		if err != nil {
			log.FromContext(ctx).Info("Assuming that the domain of this cluster's DNS is cluster.local", "err", err)
		}
		server.Domain = domain
	}
	return server
}

// namesLeadElsewhere reports whether clients that use the DNS names of the API server reach another port than clients
// that use the environment variables. With the DNS names, clients use port 443.
func namesLeadElsewhere(host, port string) bool {
	return net.ParseIP(host) != nil && port != "" && port != "443"
}
