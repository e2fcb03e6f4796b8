// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

const (
	// namePattern is the grammar of repository names in the OCI distribution specification. It does not allow parts
	// such as "..", which servers would resolve.
	namePattern = `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*`
	tagPattern  = `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`
	// hostPattern does not allow ports with leading zeros or empty ports, because both are other spellings of a port.
	hostPattern = `([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?`
)

var (
	isName = regexp.MustCompile(`^` + namePattern + `$`).MatchString
	isTag  = regexp.MustCompile(`^` + tagPattern + `$`).MatchString
	isHost = regexp.MustCompile(`^` + hostPattern + `$`).MatchString
)

// ParseImage parses an image. The result has only one spelling for each repository, so that it can be compared with a
// policy: the host is in lower case and has no default port, and spellings that servers treat as another path or host
// are refused.
func ParseImage(image string) (name.Reference, error) {
	host, rest, found := strings.Cut(image, "/")
	if found {
		image = NormalizeHost(host) + "/" + rest
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return nil, Errorf(InvalidSource, "spec.source.oci.image: %w", err)
	}
	repository := reference.Context()
	if host := repository.RegistryStr(); !isCanonicalHost(host) {
		return nil, Errorf(InvalidSource, "spec.source.oci.image: %q is not a host in its usual spelling, with or without a port", host)
	}
	if path := repository.RepositoryStr(); !isName(path) {
		return nil, Errorf(InvalidSource, "spec.source.oci.image: %q is not the name of a repository: its parts have lower case letters and digits, and between them single dots, one or two underscores, or dashes", path)
	}
	if tag, ok := reference.(name.Tag); ok && !isTag(tag.TagStr()) {
		return nil, Errorf(InvalidSource, "spec.source.oci.image: %q is not a tag: it begins with a letter, a digit or an underscore", tag.TagStr())
	}
	return reference, nil
}

// NormalizeHost returns a host in lower case, without a default port and without a trailing dot. The result is the
// same for all names of Docker Hub.
func NormalizeHost(host string) string {
	host = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(host), ":443"), ".")
	if host == "docker.io" || host == "registry-1.docker.io" {
		return name.DefaultRegistry
	}
	return host
}

// isCanonicalHost reports whether a result of NormalizeHost is the only spelling of the host.
func isCanonicalHost(host string) bool {
	if !isHost(host) {
		return false
	}
	if text, _, isV6 := strings.Cut(strings.TrimPrefix(host, "["), "]"); isV6 {
		address, err := netip.ParseAddr(text)
		return err == nil && !address.Is4In6() && address.String() == text
	}
	return true
}
