// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// environment returns the environment variables of the first container in a ShadowPod, and the host aliases.
func environment(shadow *unstructured.Unstructured) (variables map[string]string, aliases string) {
	variables = map[string]string{}
	containers, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers")
	list, _ := raw.Map(containers[0])["env"].([]any)
	for _, item := range list {
		variables[fmt.Sprint(raw.Map(item)["name"])] = fmt.Sprint(raw.Map(item)["value"])
	}
	return variables, fmt.Sprint(raw.Nested(shadow.Object, "spec", "pod", "hostAliases"))
}

// TestPodsFindTheAPIServer checks that offloaded pods get the address of this cluster's API server from the network
// or from the configuration. Pods without tokens must get no address.
func TestPodsFindTheAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *reflection.Options) { o.FollowIPs, o.APIServer.Port = true, "6443" })
	l.Options.LiqoNamespace = l.Tenant // Any namespace that no other test uses is suitable.
	l.defineIPs()
	object := ip("api-server", "10.96.0.1", "10.70.0.1")
	ips := l.Local.Dynamic.Resource(ipsResource)
	reflectiontest.Must(ips.Namespace(l.Options.LiqoNamespace).Create(t.Context(), object, metav1.CreateOptions{}))(t)
	reflectiontest.Must(ips.Namespace(l.Namespace).Create(t.Context(), ip("api-server", "10.96.0.1", "10.70.0.99"), metav1.CreateOptions{}))(t)
	for name, test := range map[string]struct {
		change               func(*reflection.Options)
		host, variable, port string
		alias                string
	}{
		"by-network": {func(*reflection.Options) {}, "kubernetes.default", "KUBERNETES_PORT_6443_TCP", "6443", "10.70.0.1"},
		"by-user":    {func(o *reflection.Options) { o.APIServer = reflection.APIServer{Host: "api.example.com", Port: "443"} }, "api.example.com", "KUBERNETES_PORT_443_TCP", "443", ""},
		"not":        {func(o *reflection.Options) { o.APIServerSupport = reflection.SupportDisabled }, "", "", "", ""},
	} {
		options := l.Options
		test.change(&l.Options)
		l.Start()
		l.userPod(name, vaultToken)
		variables, aliases := environment(l.Present(l.Remote, "ShadowPod", l.RemoteNS, name))
		if variables["KUBERNETES_SERVICE_HOST"] != test.host || variables["KUBERNETES_SERVICE_PORT"] != test.port || test.variable != "" && variables[test.variable] == "" {
			t.Errorf("pod %s has the environment %v", name, variables)
		}
		if found := strings.Contains(aliases, "10.70.0.1"); found != (test.alias != "") || found && !strings.Contains(aliases, "kubernetes.default.svc") || strings.Contains(aliases, "10.70.0.99") {
			t.Errorf("pod %s has the host aliases %s", name, aliases)
		}
		l.Settled()
		l.Stop()
		l.Options = options
	}
}

// TestPodsWaitForTheAddressOfTheAPIServer checks that a pod that needs this cluster's API server is not offloaded
// before the network has reported its address. An Event must report that the pod waits, and the pod must continue
// automatically. Without waiting, it would use the provider's API server forever. If no network is going to report an
// address, pods do not wait: Liqo's network creates an IP resource for the API server when it is installed, so if there
// is no such resource, only the CRD is installed.
func TestPodsWaitForTheAddressOfTheAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *reflection.Options) { o.FollowIPs, o.APIServer.Port = true, "6443" })
	l.Options.LiqoNamespace = l.Tenant // Any namespace that no other test uses is suitable.
	l.defineIPs()
	l.Start()
	l.userPod("before", vaultToken)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "before")
	ips := l.Local.Dynamic.Resource(ipsResource).Namespace(l.Options.LiqoNamespace)
	announced := ip("api-server", "10.96.0.1", "")
	reflectiontest.Must(ips.Create(t.Context(), announced, metav1.CreateOptions{}))(t)
	l.Settled()
	l.Stop()
	l.Start() // the IP resource must be read before any pod is evaluated
	l.userPod("needs", vaultToken)
	l.Pod("needs-none")
	if variables, _ := environment(l.Present(l.Remote, "ShadowPod", l.RemoteNS, "needs-none")); variables["KUBERNETES_SERVICE_HOST"] != "" {
		t.Errorf("a pod without a token got the environment %v, which leads nowhere", variables)
	}
	l.Event(l.Namespace, "Pod", "needs", "Warning", failure.PluginFailedReason, "has not reported yet at which address", "liqo.io/api-server-support")
	l.Settled()
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "needs") != nil {
		t.Fatal("the pod was offloaded without a way to its API server")
	}
	told := reflectiontest.Must(ips.Get(t.Context(), "api-server", metav1.GetOptions{}))(t)
	told.Object["status"] = map[string]any{"ip": "10.70.0.1"}
	reflectiontest.Must(ips.Update(t.Context(), told, metav1.UpdateOptions{}))(t)
	if variables, aliases := environment(l.Present(l.Remote, "ShadowPod", l.RemoteNS, "needs")); variables["KUBERNETES_SERVICE_HOST"] != "kubernetes.default" || !strings.Contains(aliases, "10.70.0.1") {
		t.Errorf("the pod has the environment %v and the host aliases %s", variables, aliases)
	}
}
