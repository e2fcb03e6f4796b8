// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/redirect"
	"github.com/refract-project/refract/internal/retryafter"
	"github.com/refract-project/refract/internal/rewind"
)

// LoadLocal returns the client configuration of a process for its own cluster. It comes from the kubeconfig at path, or
// from the process's pod if path is empty. source is the flag or variable that contains path, and flag is the name of
// the flag for a kubeconfig; both are used in errors. Like the clients of a Connection, clients of this configuration
// do not follow redirects, notice when the API server was restored from a backup, and return throttled requests
// immediately.
func LoadLocal(flag, source, path string) (*rest.Config, error) {
	config, err := readLocal(flag, source, path)
	if err != nil {
		return nil, err
	}
	redirect.Refuse(config)
	rewind.Wrap(config)
	retryafter.Wrap(config)
	return config, nil
}

func readLocal(flag, source, path string) (*rest.Config, error) {
	if path != "" {
		config, err := ParseFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s=%s cannot be used: %w", source, path, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("no kubeconfig for this cluster: set %s or $KUBECONFIG, or run in a pod (%w)", flag, err)
	}
	return config, nil
}
