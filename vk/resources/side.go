// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// side contains the clients for one of the two clusters.
type side struct {
	id      string
	remote  bool
	timeout time.Duration
	home    string // ID of this cluster
	prefix  string // prefix of role names in this installation
	reviews reviews

	discovery     *discovery.DiscoveryClient
	authorization authorizationv1.AuthorizationV1Interface
	dynamic       dynamic.Interface
	metadata      metadata.Interface
}

func newSide(config *rest.Config, id string, remote bool, o Options) (*side, error) {
	s := &side{id: id, remote: remote, timeout: o.CallTimeout, home: o.LocalClusterID, prefix: o.RolePrefix,
		// The answers must expire before the first retry, so that retries see new permissions.
		reviews: reviews{clock: o.Clock, last: o.RetryFirst / 2, answers: map[string]*lasting{}}}
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s, %w", s, err)
	}
	if s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("creating a discovery client for %s, %w", s, err)
	}
	if s.authorization, err = authorizationv1.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("creating an authorization client for %s, %w", s, err)
	}
	if s.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("creating a client for %s, %w", s, err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), client); err != nil {
		return nil, fmt.Errorf("creating a metadata client for %s, %w", s, err)
	}
	return s, nil
}

// String returns the name of the cluster for messages.
func (s *side) String() string {
	if s.remote {
		return "cluster " + s.id
	}
	return "this cluster (" + s.id + ")"
}

// withTimeout returns a context with the timeout of one call.
func (s *side) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}
