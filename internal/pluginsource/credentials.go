// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"encoding/json"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// credentialsFor returns the credentials for a repository from a .dockerconfigjson. It uses the entry with the
// longest matching path, as the kubelet does.
func credentialsFor(repository name.Repository, dockerConfig []byte) (authn.Authenticator, error) {
	if dockerConfig == nil {
		return authn.Anonymous, nil
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(dockerConfig, &config); err != nil {
		// The original error is not returned, because it may quote a password.
		return nil, Errorf(InvalidSecret, "pullSecret: .dockerconfigjson is not a configuration of Docker")
	}
	best, found := "", authn.Anonymous
	for key, credentials := range config.Auths {
		if entry := normalizeServer(key); isBelow(repository.Name(), entry) && len(entry) > len(best) {
			best, found = entry, authn.FromConfig(credentials)
		}
	}
	if best == "" {
		return nil, Errorf(InvalidSecret, "pullSecret has no credentials for %s", repository.RegistryStr())
	}
	return found, nil
}

// normalizeServer returns the host and path of a key of a Docker configuration.
func normalizeServer(key string) string {
	for _, prefix := range []string{"https://", "http://"} {
		key = strings.TrimPrefix(key, prefix)
	}
	key = strings.TrimSuffix(key, "/")
	for _, suffix := range []string{"/v1", "/v2"} {
		key = strings.TrimSuffix(key, suffix)
	}
	host, path, found := strings.Cut(key, "/")
	host = NormalizeHost(host)
	if !found {
		return host
	}
	return host + "/" + path
}

// isBelow reports whether a repository is equal to the host or path of an entry, or is below it.
func isBelow(repository, entry string) bool {
	return repository == entry || strings.HasPrefix(repository, entry+"/")
}
