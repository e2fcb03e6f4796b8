// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/internal/printable"
)

// hostName matches host names. Container runtimes also use underscores in them.
var hostName = regexp.MustCompile(`^([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.?$`)

// ParseServer parses the URL of an API server that other machines will use. It returns an error if no machine can use
// the URL, or if the URL contains more than an address. The error never contains a password.
func ParseServer(text string) (*url.URL, error) {
	if !printable.IsLine(text) || strings.ContainsAny(text, " \t") {
		return nil, errors.New("must be an https URL without spaces and control characters")
	}
	server, err := url.Parse(text)
	if err != nil || server.Scheme != "https" || server.Hostname() == "" {
		return nil, errors.New("must be an https URL")
	}
	if server.User != nil || server.RawQuery != "" || server.Fragment != "" {
		return nil, errors.New("must be an https URL without user, query and fragment")
	}
	if port := server.Port(); port != "" || strings.HasSuffix(server.Host, ":") {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return nil, fmt.Errorf("must be an https URL with a port from 1 to 65535, not %q", port)
		}
	}
	host := strings.ToLower(server.Hostname())
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		return server, nil
	}
	// Resolvers treat a name that ends with a number as an IPv4 address.
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	isNumber := strings.Trim(labels[len(labels)-1], "0123456789") == ""
	if isNumber || len(host) > validation.DNS1123SubdomainMaxLength || !hostName.MatchString(host) {
		return nil, fmt.Errorf("must be an https URL with an IP address or the name of a host, not %q", host)
	}
	return server, nil
}

// RefersToNoMachine reports whether the host in a URL is an unspecified or multicast address. A client would connect to
// its own machine, or not at all.
func RefersToNoMachine(server *url.URL) bool {
	address, err := netip.ParseAddr(server.Hostname())
	address = address.Unmap()
	return err == nil && (address.IsUnspecified() || address.IsMulticast())
}
