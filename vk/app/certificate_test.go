// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestDefaultCertificateDir checks that virtual kubelets of several clusters on one machine use different folders for
// certificates, and that a restarted virtual kubelet uses the same folder again.
func TestDefaultCertificateDir(t *testing.T) {
	config := func(host, authority string) *rest.Config {
		return &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(authority)}}
	}
	dirs := map[string]bool{
		defaultCertificateDir(config("https://10.0.0.1", "rome"), "milan"):   true,
		defaultCertificateDir(config("https://10.0.0.1", "rome"), "turin"):   true,
		defaultCertificateDir(config("https://10.0.0.1", "naples"), "milan"): true,
		defaultCertificateDir(config("https://10.0.0.2", "rome"), "milan"):   true,
	}
	assert.Len(t, dirs, 4)
	assert.True(t, dirs[defaultCertificateDir(config("https://10.0.0.1", "rome"), "milan")], "after a restart")
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("rome"), 0o600))
	inFile := &rest.Config{Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
	assert.True(t, dirs[defaultCertificateDir(inFile, "milan")], "with the authority in a file, as in a pod")
}
