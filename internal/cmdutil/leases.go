// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// LeaseClient returns a client for leases alone, whose requests take no longer than timeout. It asks over connections of its
// own, which end with a request that gets no answer: over one that is shared, and dead without anybody knowing, an API server
// that is back would be found late.
func LeaseClient(config *rest.Config, timeout time.Duration) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for leases on %s, %w", config.Host, err)
	}
	return client, nil
}
