// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	offloaded := map[string]string{"shop": "shop-rome", "pay": "shop"}
	same, err := NewNames("cluster.local", "cluster.local.", offloaded)
	require.NoError(t, err)
	different, err := NewNames("Home.Example", "cluster.local", offloaded)
	require.NoError(t, err)
	for _, c := range []struct {
		names      *Names
		home, here string
		kind       kindOfName
	}{
		{same, "web.shop.svc.cluster.local.", "web.shop-rome.svc.cluster.local.", translatedName},
		{same, "Web.SHOP.Svc.Cluster.Local.", "Web.shop-rome.svc.cluster.local.", translatedName},
		{same, "web-0.web.shop.svc.cluster.local.", "web-0.web.shop-rome.svc.cluster.local.", translatedName},
		{same, "_http._tcp.web.shop.svc.cluster.local.", "_http._tcp.web.shop-rome.svc.cluster.local.", translatedName},
		{same, "10-0-0-7.shop.pod.cluster.local.", "10-0-0-7.shop-rome.pod.cluster.local.", translatedName},
		{same, "shop.svc.cluster.local.", "shop-rome.svc.cluster.local.", translatedName},
		{same, "web.pay.svc.cluster.local.", "web.shop.svc.cluster.local.", translatedName},
		{same, "web.other.svc.cluster.local.", "web.other.svc.cluster.local.", otherName},
		{same, "web.shop-rome.svc.cluster.local.", "web.shop-rome.svc.cluster.local.", otherName},
		{same, "shop.svc.cluster.local.example.com.", "shop.svc.cluster.local.example.com.", otherName},
		{same, "svc.cluster.local.", "svc.cluster.local.", otherName},
		{same, "web.shop.xsvc.cluster.local.", "web.shop.xsvc.cluster.local.", otherName},
		{same, "example.com.", "example.com.", otherName},
		{same, ".", ".", otherName},
		{different, "web.shop.svc.home.example.", "web.shop-rome.svc.cluster.local.", translatedName},
		{different, "web.shop.svc.cluster.local.", "web.shop.svc.cluster.local.", otherName},
		{different, "web.other.svc.home.example.", "web.other.svc.home.example.", absentName},
		{different, "www.home.example.", "www.home.example.", otherName},
	} {
		here, kind := c.names.toCluster(c.home)
		assert.Equal(t, c.here, here, c.home)
		assert.Equal(t, c.kind, kind, c.home)
		if kind == translatedName {
			assert.Equal(t, lower(c.home), lower(c.names.toHome(here)), "the way back")
		}
	}
	assert.Equal(t, "home.example.", different.toHome("cluster.local."), "the name of the SOA record")
	assert.Equal(t, "web.pay.svc.cluster.local.", same.toHome("web.shop.svc.cluster.local."))
	assert.Equal(t, "web.milan.svc.cluster.local.", same.toHome("web.milan.svc.cluster.local."), "a namespace of another consumer")
}

func TestReadResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string]string{
		"search liqo-tenant-rome.svc.c.example svc.c.example c.example corp\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n": "[10.96.0.10:53 [fd00::a]:53] c.example",
		"nameserver 10.96.0.10\n":       "no search domain that begins with svc.",
		"search a.svc.b svc.b b\n\n":    "has no nameserver",
		"nameserver\nsearch svc.a svc.": "has no nameserver",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		servers, domain, err := ReadResolvConf(path)
		if err != nil {
			assert.ErrorContains(t, err, want)
			continue
		}
		assert.Equal(t, want, fmt.Sprint(servers, " ", domain))
	}
	_, _, err := ReadResolvConf(path + ".none")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestTwoNamespacesCannotHaveOneRemoteNamespace(t *testing.T) {
	_, err := NewNames(DefaultDomain, DefaultDomain, map[string]string{"a": "x", "b": "x"})
	assert.ErrorContains(t, err, "namespaces a and b of the consumer have the same remote namespace x")
}
