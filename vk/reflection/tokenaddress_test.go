// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// environment of the first container of a ShadowPod, and its host aliases.
func environment(shadow *unstructured.Unstructured) (variables map[string]string, aliases string) {
	variables = map[string]string{}
	containers, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers")
	list, _ := raw.Map(containers[0])["env"].([]any)
	for _, item := range list {
		variables[fmt.Sprint(raw.Map(item)["name"])] = fmt.Sprint(raw.Map(item)["value"])
	}
	return variables, fmt.Sprint(raw.Nested(shadow.Object, "spec", "pod", "hostAliases"))
}

// Offloaded pods find this cluster's API server where the network says, or where the user says; without tokens they are
// told nothing of it.
func TestPodsFindTheAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *Options) { o.FollowIPs, o.APIServer.Port = true, "6443" })
	l.options.LiqoNamespace = l.tenant // any namespace of this test's own
	l.defineIPs()
	object := ip("api-server", "10.96.0.1", "10.70.0.1")
	ips := l.local.dynamic.Resource(ipsResource)
	must(ips.Namespace(l.options.LiqoNamespace).Create(t.Context(), object, metav1.CreateOptions{}))(t)
	must(ips.Namespace(l.namespace).Create(t.Context(), ip("api-server", "10.96.0.1", "10.70.0.99"), metav1.CreateOptions{}))(t)
	for name, test := range map[string]struct {
		change               func(*Options)
		host, variable, port string
		alias                string
	}{
		"by-network": {func(*Options) {}, "kubernetes.default", "KUBERNETES_PORT_6443_TCP", "6443", "10.70.0.1"},
		"by-user":    {func(o *Options) { o.APIServer = APIServer{Host: "api.example.com", Port: "443"} }, "api.example.com", "KUBERNETES_PORT_443_TCP", "443", ""},
		"not":        {func(o *Options) { o.APIServerSupport = SupportDisabled }, "", "", "", ""},
	} {
		options := l.options
		test.change(&l.options)
		l.start()
		l.userPod(name, vaultToken)
		variables, aliases := environment(l.present(l.remote, "ShadowPod", l.remoteNS, name))
		if variables["KUBERNETES_SERVICE_HOST"] != test.host || variables["KUBERNETES_SERVICE_PORT"] != test.port || test.variable != "" && variables[test.variable] == "" {
			t.Errorf("pod %s has the environment %v", name, variables)
		}
		if found := strings.Contains(aliases, "10.70.0.1"); found != (test.alias != "") || found && !strings.Contains(aliases, "kubernetes.default.svc") || strings.Contains(aliases, "10.70.0.99") {
			t.Errorf("pod %s has the host aliases %s", name, aliases)
		}
		l.settled()
		l.stop()
		l.options = options
	}
}

// A pod that needs this cluster's API server is not offloaded before the network has told where that is reached, which is said;
// then it goes on by itself. It would talk to the provider's API server for ever.
func TestPodsWaitForTheAddressOfTheAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, withTokens(t), func(o *Options) { o.FollowIPs, o.APIServer.Port = true, "6443" })
	l.options.LiqoNamespace = l.tenant // any namespace of this test's own
	l.defineIPs()
	l.start()
	l.userPod("needs", vaultToken)
	l.pod("needs-none")
	l.present(l.remote, "ShadowPod", l.remoteNS, "needs-none")
	l.event(l.namespace, "Pod", "needs", "Warning", PluginFailedReason, "has not told yet at which address", "liqo.io/api-server-support")
	l.settled()
	if l.remote.get(t, "ShadowPod", l.remoteNS, "needs") != nil {
		t.Fatal("the pod was offloaded without a way to its API server")
	}
	must(l.local.dynamic.Resource(ipsResource).Namespace(l.options.LiqoNamespace).Create(t.Context(), ip("api-server", "10.96.0.1", "10.70.0.1"), metav1.CreateOptions{}))(t)
	if variables, aliases := environment(l.present(l.remote, "ShadowPod", l.remoteNS, "needs")); variables["KUBERNETES_SERVICE_HOST"] != "kubernetes.default" || !strings.Contains(aliases, "10.70.0.1") {
		t.Errorf("the pod has the environment %v and the host aliases %s", variables, aliases)
	}
}

func TestRenewalOfTokens(t *testing.T) {
	t.Parallel()
	clock := fakeClock()
	r := &reflector{m: &Manager{options: Options{Clock: clock}}}
	in := func(left, life time.Duration) token { return token{"x", clock.Now().Add(left), life} }
	for name, test := range map[string]struct {
		held        map[string]token
		least, most time.Duration
	}{
		"fresh":            {map[string]token{"a": in(time.Hour, time.Hour)}, 48 * time.Minute, 51 * time.Minute},
		"the first counts": {map[string]token{"a": in(time.Hour, time.Hour), "b": in(10*time.Minute, 10*time.Minute)}, 8 * time.Minute, 8*time.Minute + 30*time.Second},
		"a year":           {map[string]token{"a": in(8760*time.Hour, 8760*time.Hour)}, 7008 * time.Hour, 7008*time.Hour + tokenJitterMost},
		"clocks disagree":  {map[string]token{"a": in(-time.Hour, time.Hour)}, tokenPause, tokenPause},
		"no life at all":   {map[string]token{"a": {value: "x", expires: clock.Now()}}, tokenPause, tokenPause},
	} {
		if wait := r.untilRenewal(test.held); wait < test.least || wait > test.most {
			t.Errorf("%s: in %s, want %s to %s", name, wait, test.least, test.most)
		}
	}
}

func TestLabelOfALongServiceAccount(t *testing.T) {
	t.Parallel()
	if got := labelValue("robot"); got != "robot" {
		t.Errorf("a short name became %q", got)
	}
	one, other := labelValue(strings.Repeat("x", 63)+"a"), labelValue(strings.Repeat("x", 63)+"b")
	if len(one) != 63 || one == other {
		t.Errorf("long names became %q and %q", one, other)
	}
}

// What cannot be read of the notes on a Secret is no token, and nothing else.
func TestNotesOnTokensThatMakeNoSense(t *testing.T) {
	t.Parallel()
	sources := []tokenSource{{key: "a", seconds: 600}}
	for name, annotations := range map[string]map[string]any{
		"none at all":  nil,
		"no pod":       {TokensAnnotation: `{"a":{"expires":"2026-01-01T00:00:00Z","seconds":600}}`},
		"no JSON":      {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: "{"},
		"another sum":  {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: `{"a":{"expires":"2026-01-01T00:00:00Z","seconds":600,"sum":"x"}}`},
		"no time":      {"offloading.liqo.io/service-account-for-pod-uid": "u", "offloading.liqo.io/service-account-expiration": "soon"},
		"another time": {"offloading.liqo.io/service-account-for-pod-uid": "u", TokensAnnotation: `{"a":{"expires":5}}`},
	} {
		secret := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": annotations}, "data": map[string]any{"a": "eA=="}}}
		if held := heldTokens(secret, sources, nil); len(held) != 0 {
			t.Errorf("%s: %v", name, held)
		}
	}
}
