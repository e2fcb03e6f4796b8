// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invitation

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func kubeconfig(extension runtime.Object) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["milan"] = &clientcmdapi.Cluster{Server: "https://milan.example"}
	config.Contexts["milan"] = &clientcmdapi.Context{Cluster: "milan"}
	config.CurrentContext = "milan"
	if extension != nil {
		config.Clusters["milan"].Extensions = map[string]runtime.Object{extensionName: extension}
	}
	return config
}

// TestEmbedAndParse checks that an invitation can be read from the kubeconfig in which it was embedded.
func TestEmbedAndParse(t *testing.T) {
	t.Parallel()
	written := &Invitation{Consumer: "rome", Provider: "milan", ProviderUID: "uid", Version: "0.2.0", PodRanges: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")},
		Resources: corev1.ResourceList{"cpu": resource.MustParse("2")}}
	config := kubeconfig(nil)
	require.NoError(t, written.Embed(config.Clusters["milan"]))
	file, err := clientcmd.Write(*config)
	require.NoError(t, err)
	read, err := clientcmd.Load(file)
	require.NoError(t, err)
	for _, context := range []string{"", "milan"} {
		assert.True(t, IsIn(read, context))
		found, err := Parse(read, context)
		require.NoError(t, err)
		assert.Equal(t, written.PodRanges, found.PodRanges)
		assert.Equal(t, "2", found.Resources.Cpu().String())
	}
	assert.False(t, IsIn(read, "turin"))
}

// TestParseRefuses checks that a kubeconfig without an invitation is treated as an administrator's kubeconfig. An
// invalid invitation must be an error, so that its kubeconfig is not mistaken for an administrator's.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	found, err := Parse(kubeconfig(nil), "")
	require.NoError(t, err)
	assert.Nil(t, found)
	for name, test := range map[string]struct {
		extension runtime.Object
		want      string
	}{
		"of another type": {&corev1.Pod{}, "cannot be read: ask for another invitation"},
		"no JSON":         {&runtime.Unknown{Raw: []byte("{")}, "cannot be read: ask for another invitation"},
		"without UID":     {&runtime.Unknown{Raw: []byte(`{"Consumer":"rome","Provider":"milan"}`)}, "does not say which clusters it is for"},
		"a hostile ID":    {&runtime.Unknown{Raw: []byte(`{"Consumer":"rome","Provider":"../milan","ProviderUID":"uid"}`)}, "names a cluster"},
		"a short key":     {&runtime.Unknown{Raw: []byte(`{"Consumer":"rome","Provider":"milan","ProviderUID":"uid","Gateway":{"Endpoint":{"addresses":["192.0.2.1"],"port":1},"PublicKey":"YQ=="}}`)}, "a gateway without a valid key or address"},
	} {
		assert.True(t, IsIn(kubeconfig(test.extension), ""), name)
		_, err := Parse(kubeconfig(test.extension), "")
		assert.ErrorContains(t, err, test.want, name)
	}
}

func TestLimitResources(t *testing.T) {
	t.Parallel()
	granted := &Invitation{Consumer: "rome", Provider: "milan", Resources: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")}}
	all, err := granted.LimitResources(corev1.ResourceList{"cpu": resource.MustParse("1")})
	require.NoError(t, err)
	assert.Equal(t, "1 4Gi", all.Cpu().String()+" "+all.Memory().String())
	assert.Equal(t, "2", granted.Resources.Cpu().String(), "the invitation is unchanged")
	_, err = granted.LimitResources(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")})
	assert.ErrorContains(t, err, "--nvidia.com/gpu is 1, but milan gives 0")
}

func TestEndedError(t *testing.T) {
	t.Parallel()
	for want, expiry := range map[string]time.Time{"was withdrawn, or is of another cluster": {}, "expired at 2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} {
		assert.ErrorContains(t, &EndedError{Cluster: "milan", Consumer: "rome", Expiry: expiry}, want)
	}
}
