// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APIServer describes the API server of this cluster for consumers.
type APIServer struct {
	// URL is the address at which consumers reach the API server. If it is empty, the endpoint of the Service
	// kubernetes is used.
	URL string
	// CA contains the PEM certificates that verify the API server. If it is empty and TrustedCA is not set, consumers
	// get the certificate authority that this process itself uses.
	CA []byte
	// TrustedCA means that the API server is verified with the certificate authorities of the consumer's system.
	TrustedCA bool
	// Config is the client configuration of this process.
	Config *rest.Config
}

// locate returns the URL and the certificate authority that consumers use to reach the API server.
func (s *APIServer) locate(ctx context.Context, live client.Reader) (url string, authority []byte, err error) {
	if authority, err = s.authority(); err != nil {
		return "", nil, err
	}
	if s.URL != "" {
		return s.URL, authority, nil
	}
	slice := &discoveryv1.EndpointSlice{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, slice); client.IgnoreNotFound(err) != nil {
		return "", nil, fmt.Errorf("getting EndpointSlice default/kubernetes, %w", err)
	}
	for _, endpoint := range slice.Endpoints {
		for _, port := range slice.Ports {
			if len(endpoint.Addresses) > 0 && port.Port != nil {
				return "https://" + net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))), authority, nil
			}
		}
	}
	return "", nil, &refusal{reason: addressUnknownReason, again: signRetryInterval,
		message: "The address of this API server is unknown, EndpointSlice default/kubernetes has none: set apiServer.address of the chart (--api-server-address-override) to the address at which consumers reach it"}
}

func (s *APIServer) authority() ([]byte, error) {
	switch {
	case len(s.CA) > 0:
		return s.CA, nil
	case s.TrustedCA:
		return nil, nil
	case len(s.Config.CAData) > 0:
		return s.Config.CAData, nil
	case s.Config.CAFile != "":
		authority, err := os.ReadFile(s.Config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the authority of the API server, %w", err)
		}
		return authority, nil
	}
	return nil, nil
}
