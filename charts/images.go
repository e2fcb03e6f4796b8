// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
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
	_, err := name.NewRepository(image)
	host, path, _ := strings.Cut(image, "/")
	if host == "" {
		err = errors.New("there is no host")
	}
	if err == nil && !imagePath.MatchString(path) {
		err = fmt.Errorf("the path %q is not one of an image", path)
	}
	if _, port, found := strings.Cut(host[strings.LastIndex(host, "]")+1:], ":"); err == nil && found {
		if number, portErr := strconv.ParseUint(port, 10, 16); portErr != nil || number == 0 {
			err = fmt.Errorf("the port %q is not from 1 to 65535", port)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%q is not a registry with a path, such as registry.example.com/refract: %w", registry, err)
	}
	return image, nil
}

// imagePath matches the paths that container runtimes accept. The library accepts further paths, for example with an
// empty part.
var imagePath = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

// CheckImage returns an error if container runtimes do not accept a reference to an image.
func CheckImage(reference string) error {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("%q is not an image, such as registry.example.com/refract/virtual-kubelet:0.2.0: %w", reference, err)
	}
	host, path, found := strings.Cut(strings.TrimSuffix(parsed.Context().Name(), "/"), "/")
	if !found {
		return nil
	}
	_, err = ImageName(host+"/"+path, "x")
	return err
}
