// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseServer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"https://milan.example.com", "https://milan.example.com.:6443/", "https://MILAN:65535/k8s/clusters/c-1", "HTTPS://10.0.0.1:1", "https://[2001:db8::1]:6443", "https://k3d_server-0:6443",
		"https://a", "https://4b", "https://x1", "https://1.2.3.4.nip.io", "https://" + strings.Repeat("a", 63) + ".example",
	} {
		_, err := ParseServer(text)
		assert.NoError(t, err, text)
	}
	for text, want := range map[string]string{
		"": "must be an https URL", "milan:6443": "https URL", "http://milan": "https URL", "https://": "https URL", "https://:6443": "https URL", "https:///path": "https URL",
		"https://milan:": "port from 1 to 65535", "https://milan:0": "port from 1 to 65535", "https://milan:65536": "port from 1 to 65535", "https://milan:-1": "https URL", "https://[::1]:99999": "port from 1 to 65535",
		"https://u:secret@milan": "without user", "https://milan?a=b": "query", "https://milan#a": "fragment",
		"https://milan:6443\n": "control characters", "https://mi lan": "spaces", "https://milan\u202e": "control characters", " https://milan": "spaces",
		"https://256.1.1.1": "IP address or the name", "https://0:6443": "IP address or the name", "https://127.1": "IP address or the name", "https://-milan": "IP address or the name", "https://a..b": "IP address or the name", "https://milan,rome": "IP address or the name",
		"https://[fe80::1%25eth0]": "IP address or the name", "https://" + strings.Repeat("a", 64): "IP address or the name", "https://" + strings.Repeat("a.", 130) + "b": "IP address or the name",
	} {
		_, err := ParseServer(text)
		assert.ErrorContains(t, err, want, text)
		if err != nil {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestRefersToNoMachine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"https://0.0.0.0:6443": true, "https://[::]": true, "https://[::ffff:0.0.0.0]": true, "https://224.0.0.1": true, "https://127.0.0.1": false, "https://milan": false} {
		server, err := ParseServer(text)
		assert.NoError(t, err)
		assert.Equal(t, want, RefersToNoMachine(server), text)
	}
}
