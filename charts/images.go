// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// ImageName returns the name of the image of a command in a registry. The registry is a host with a path, such as
// registry.example.com/refract. Trailing slashes are ignored. ImageName returns an error if the registry has a
// scheme, a tag or a digest.
func ImageName(registry, command string) (string, error) {
	registry = strings.TrimRight(registry, "/")
	if strings.Contains(registry, "://") {
		return "", fmt.Errorf("%q has a scheme: a registry is a host with a path, such as registry.example.com/refract", registry)
	}
	image := registry + "/" + command
	if _, err := name.NewRepository(image); err != nil {
		return "", fmt.Errorf("%q is not a registry with a path, such as registry.example.com/refract: %w", registry, err)
	}
	return image, nil
}
