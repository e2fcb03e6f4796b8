// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// provider stands for the provider's API server. The DNS names of the API server in a pod resolve to it unless the
// pod has host aliases, and so do its environment variables unless they are set.
const provider = "provider"

// whereItLeads returns the host to which each environment variable and each DNS name of the API server leads in a
// pod.
func whereItLeads(shadow *unstructured.Unstructured) map[string]string {
	leads := map[string]string{}
	for _, name := range []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes.default.svc.rome.example"} {
		leads[name] = provider
	}
	aliases, _ := raw.Nested(shadow.Object, "spec", "pod", "hostAliases").([]any)
	for _, alias := range aliases {
		names, _ := raw.Map(alias)["hostnames"].([]any)
		for _, name := range names {
			leads[fmt.Sprint(name)] = fmt.Sprint(raw.Map(alias)["ip"])
		}
	}
	variables, _ := environment(shadow)
	names := maps.Clone(leads)
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_PORT", "KUBERNETES_PORT_443_TCP", "KUBERNETES_PORT_443_TCP_ADDR", "KUBERNETES_PORT_6443_TCP_ADDR"} {
		value, set := variables[name]
		if _, address, is := strings.Cut(value, "://"); is {
			value = address[:strings.LastIndex(address, ":")]
		}
		switch {
		case !set:
			leads[name] = provider
		case names[value] != "":
			leads[name] = names[value]
		default:
			leads[name] = value
		}
	}
	return leads
}

// TestNamesOfTheAPIServerAgree checks that all names and variables of an API server in a pod lead to the same API
// server: to this cluster's API server if the pod has a token for it, regardless of where the address comes from, and
// otherwise to the provider's API server.
func TestNamesOfTheAPIServerAgree(t *testing.T) {
	t.Parallel()
	l := newLab(t, withLegacy(t))
	l.tokenSecretOf("default", "default-token")
	byNetwork := reflection.APIServer{IPs: []string{"10.70.0.1"}, Port: "6443", Domain: "rome.example"}
	byValue := reflection.APIServer{Host: "192.0.2.7", Port: "6443", Domain: "rome.example"}
	both := byValue
	both.IPs = byNetwork.IPs
	for name, test := range map[string]struct {
		mode   string
		server reflection.APIServer
		want   string
	}{
		"token-by-network":   {reflection.SupportTokenAPI, byNetwork, "10.70.0.1"},
		"token-by-value":     {reflection.SupportTokenAPI, byValue, "192.0.2.7"},
		"token-by-both":      {reflection.SupportTokenAPI, both, "192.0.2.7"},
		"legacy-by-network":  {reflection.SupportLegacy, byNetwork, "10.70.0.1"},
		"legacy-by-value":    {reflection.SupportLegacy, byValue, "192.0.2.7"},
		"disabled":           {reflection.SupportDisabled, byNetwork, provider},
		"disabled-by-value":  {reflection.SupportDisabled, byValue, provider},
		"remote":             {reflection.SupportRemote, byNetwork, provider},
		"remote-by-value":    {reflection.SupportRemote, byValue, provider},
		"token-by-host-name": {reflection.SupportTokenAPI, reflection.APIServer{Host: "kubernetes.default", IPs: byNetwork.IPs, Port: "6443", Domain: "rome.example"}, "10.70.0.1"},
	} {
		l.Options.APIServerSupport, l.Options.APIServer = test.mode, test.server
		l.Start()
		l.userPod(name, vaultToken)
		for key, leads := range whereItLeads(l.Present(l.Remote, "ShadowPod", l.RemoteNS, name)) {
			if leads != test.want {
				t.Errorf("%s: %s leads to %s, want %s", name, key, leads, test.want)
			}
		}
		l.Settled()
		l.Stop()
	}
}
