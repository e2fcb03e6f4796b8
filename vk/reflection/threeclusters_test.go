// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// endpointsOf lists the addresses of the endpoints in the slices of a Service. path is the path of the endpoints in a
// slice.
func (l *lab) endpointsOf(s *reflectiontest.Side, kind, namespace, service string, path ...string) (addresses []string) {
	l.Helper()
	list := reflectiontest.Must(s.Of(kind, namespace).List(l.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service}))(l.T)
	for _, object := range list.Items {
		endpoints, _, _ := unstructured.NestedSlice(object.Object, append(path, "endpoints")...)
		for _, endpoint := range endpoints {
			of, _, _ := unstructured.NestedStringSlice(raw.Map(endpoint), "addresses")
			addresses = append(addresses, of...)
		}
	}
	return addresses
}

// TestAnAddressChangesWithThreeClusters checks that if a pod of one provider, which is an endpoint for another
// provider, is recreated with another address, the local pod and its slice get the new address. The other provider
// must get the mapping of the new address, and must no longer get the mapping of the old address.
func TestAnAddressChangesWithThreeClusters(t *testing.T) {
	t.Parallel()
	asker := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds, o.FollowIPs = reflectiontest.Kinds(reflection.ServiceKind, reflection.EndpointSliceKind), true
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.244.0.0/16"})
	})
	asker.defineIPs()
	runner := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind)
		o.RemoteIPs, _ = ipmap.New(ipmap.Config{PodCIDRs: []string{"10.245.0.0/16"}, PodCIDRRemaps: []string{"10.71.0.0/16"}})
	})
	runner.Admit(asker.Namespace)
	runner.MapNamespaces(map[string]string{asker.Namespace: runner.RemoteNS})
	runner.Namespace = asker.Namespace
	mapped := func(name, from, to string) {
		t.Helper()
		reflectiontest.Must(asker.Local.Dynamic.Resource(ipsResource).Namespace(asker.Namespace).Create(t.Context(), ip(name, from, to), metav1.CreateOptions{}))(t)
	}
	sees := func(here, there string) {
		t.Helper()
		asker.Eventually(func() error {
			own := asker.endpointsOf(asker.Local, "EndpointSlice", asker.Namespace, "web")
			other := asker.endpointsOf(asker.Remote, "ShadowEndpointSlice", asker.RemoteNS, "web", "spec", "template")
			if !slices.Equal(own, strings.Fields(here)) || !slices.Equal(other, strings.Fields(there)) {
				return fmt.Errorf("endpoints are %v here and %v on the other provider, want %q and %q", own, other, here, there)
			}
			return nil
		})
	}
	asker.Start()
	runner.Start()
	at := func(address string) string { return strings.ReplaceAll(running(0), "10.245.0.9", address) }
	mapped("first", "10.71.0.9", "10.80.0.9")
	asker.Local.Create(t, asker.Namespace, service("web", ""))
	runner.Pod("web")
	runner.RunRemote("web", at("10.245.0.9"))
	sees("10.71.0.9", "10.80.0.9")

	runner.Remote.DeleteNow(t, "Pod", runner.RemoteNS, "web")
	runner.Absent(runner.Remote, "Pod", runner.RemoteNS, "web")
	runner.RunRemote("web", at("10.245.0.77"))
	// No address may be reflected: the new one has no mapping yet, and the old one no longer belongs to a pod.
	sees("10.71.0.77", "")
	mapped("second", "10.71.0.77", "10.80.0.77")
	sees("10.71.0.77", "10.80.0.77")

	// The provider's pod is then deleted, too, together with its ShadowPod.
	runner.Local.Delete(t, "Pod", runner.Namespace, "web")
	sees("", "")
}
