// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/internal/ipmap"
)

// mapper maps each address to an address in a network that identifies the cluster.
type mapper struct{}

var mappedTo = map[string]string{"home": "198.18.0.0/16", "third": "198.19.0.0/16"}

func (mapper) MapAddress(_ context.Context, cluster, address string) (string, error) {
	if address == "10.0.0.9" {
		return "", errors.New("not in the network")
	}
	to, ok := mappedTo[cluster]
	if !ok {
		to = "198.20.0.0/16"
	}
	return ipmap.Remap(netip.MustParseAddr(address), netip.MustParsePrefix(to)).String(), nil
}

func (m mapper) MapPod(ctx context.Context, cluster, address string) (string, error) {
	return m.MapAddress(ctx, cluster, address)
}

func (m mapper) MapOwn(ctx context.Context, cluster, address string) (string, error) {
	if strings.HasPrefix(address, "172.16.") {
		return "", networks.ErrForeign
	}
	return m.MapAddress(ctx, cluster, address)
}

func (mapper) Follow(func(string)) {}

// own returns a function that returns cidrs as the ranges of this cluster.
func own(cidrs ...string) func() (ipmap.Ranges, error) {
	return func() (ipmap.Ranges, error) { return ipmap.ParseRanges("own", cidrs) }
}

// allowanceFor returns the allowance of the consumer of a remote namespace with these annotations.
func allowanceFor(t *testing.T, c *Controller, annotations map[string]string) *allowance {
	t.Helper()
	allowed, err := c.allowanceOf(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}, "home")
	require.NoError(t, err)
	return allowed
}

// TestHostNames checks that the provider must allow host names explicitly, because they can be resolved to any address.
func TestHostNames(t *testing.T) {
	c := NewController(nil, nil, nil, Options{OwnRanges: own()})
	for _, allowed := range []bool{false, true} {
		shadow := kind.New()
		shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
		shadow.Object["spec"] = map[string]any{"template": map[string]any{
			"addressType": "FQDN", "endpoints": []any{map[string]any{"addresses": []any{"kubernetes.default.svc"}}},
		}}
		limits := map[string]string{"tenants.refract.io/fqdn-endpoints": fmt.Sprint(allowed)}
		slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", state{known: true, reachable: true, networking: true}, allowanceFor(t, c, limits))
		require.NoError(t, err)
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
		if got := len(endpoints) == 1; got != allowed || (len(problems) == 0) != allowed {
			t.Errorf("allowed %t: %d endpoints, problems %v", allowed, len(endpoints), problems)
		}
	}
}

// TestWithoutANetworkThereAreNoEndpoints checks that there are no endpoints without a pod network, because no address
// of the consumer is reachable.
func TestWithoutANetworkThereAreNoEndpoints(t *testing.T) {
	c := NewController(nil, nil, nil, Options{OwnRanges: own()})
	for kindOfAddress, address := range map[string]string{"IPv4": "10.70.0.1", "IPv6": "fd00:2::1", "FQDN": "web.example.com"} {
		shadow := kind.New()
		shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
		shadow.Object["spec"] = map[string]any{"template": map[string]any{
			"addressType": kindOfAddress, "endpoints": []any{map[string]any{"addresses": []any{address}}},
		}}
		limits := map[string]string{"tenants.refract.io/fqdn-endpoints": "true"}
		slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", state{known: true, reachable: true, noNetwork: true}, allowanceFor(t, c, limits))
		require.NoError(t, err)
		if endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints"); len(endpoints) > 0 || len(problems) == 0 {
			t.Errorf("%s: endpoints %v, problems %v", kindOfAddress, endpoints, problems)
		}
	}
}

// TestRangesOfALimit checks that an annotation of the tenant namespace sets the ranges of a consumer. The annotation is
// copied to the remote namespaces of the consumer.
func TestRangesOfALimit(t *testing.T) {
	c := NewController(nil, nil, nil, Options{AddressMapper: mapper{}, OwnRanges: own()})
	limits := map[string]string{"tenants.refract.io/endpoint-cidrs": "10.70.0.0/16,fd00:2::/32"}
	for address, allowed := range map[string]bool{"10.70.0.1": true, "10.71.0.1": false, "fd00:2::1": true, "fd00:3::1": false} {
		shadow := kind.New()
		shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
		shadow.Object["spec"] = map[string]any{"template": map[string]any{
			"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{address}}},
		}}
		slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", state{known: true, reachable: true}, allowanceFor(t, c, limits))
		require.NoError(t, err)
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
		if got := len(endpoints) == 1; got != allowed || (len(problems) == 0) != allowed {
			t.Errorf("%s: %d endpoints, problems %v", address, len(endpoints), problems)
		}
	}
}

func TestForgeMapsAddressesAndKeepsEverythingElse(t *testing.T) {
	endpoint := func(address string) map[string]any {
		return map[string]any{"addresses": []any{address}, "fieldOfTomorrow": int64(1)}
	}
	for name, tc := range map[string]struct {
		from        state
		addressType string
		want        []any
	}{
		"with networking":    {state{known: true, reachable: true, networking: true}, "IPv4", []any{"198.18.0.1", "198.19.0.2"}},
		"without networking": {state{known: true, reachable: true}, "IPv4", []any{"10.0.0.1", "198.19.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := kind.New()
			shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
			shadow.SetAnnotations(map[string]string{wire.DirectConnectionsDataAnnotation: `{"clusterAddresses":{"third":["10.0.0.2"]}}`})
			shadow.Object["spec"] = map[string]any{"template": map[string]any{
				"addressType": tc.addressType, "topLevelOfTomorrow": "kept",
				"endpoints": []any{endpoint("10.0.0.1"), endpoint("10.0.0.2")},
				"ports":     []any{map[string]any{"port": int64(80), "portOfTomorrow": true}},
			}}
			before := shadow.DeepCopy()
			c := NewController(nil, nil, nil, Options{AddressMapper: mapper{}, OwnRanges: own()})
			slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", tc.from, allowanceFor(t, c, nil))
			if err != nil || len(problems) > 0 {
				t.Fatal(err, problems)
			}
			ready := map[string]any{"ready": true}
			want := map[string]any{
				"addressType": tc.addressType, "topLevelOfTomorrow": "kept",
				"endpoints": []any{
					map[string]any{"addresses": []any{tc.want[0]}, "conditions": ready, "fieldOfTomorrow": int64(1)},
					map[string]any{"addresses": []any{tc.want[1]}, "conditions": ready, "fieldOfTomorrow": int64(1)},
				},
				"ports": []any{map[string]any{"port": int64(80), "name": "", "protocol": "TCP", "portOfTomorrow": true}},
			}
			for _, field := range []string{"apiVersion", "kind", "metadata"} {
				delete(slice.Object, field)
			}
			if diff := cmp.Diff(want, slice.Object); diff != "" {
				t.Errorf("slice (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before.Object, shadow.Object); diff != "" {
				t.Errorf("the cached ShadowEndpointSlice was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAddressThatCannotBeMappedIsAnError(t *testing.T) {
	shadow := kind.New()
	shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
	shadow.Object["spec"] = map[string]any{"template": map[string]any{
		"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{"10.0.0.9"}}},
	}}
	c := NewController(nil, nil, nil, Options{AddressMapper: mapper{}, OwnRanges: own()})
	if _, _, err := c.forgeSlice(t.Context(), shadow, "home", state{known: true, reachable: true, networking: true}, allowanceFor(t, c, nil)); err == nil || errors.Is(err, errMalformed) {
		t.Errorf("error = %v, want one that is worth a retry", err)
	}
}

// TestEndpointsOfTheConsumerAlone checks that endpoints with addresses of the provider, or with addresses that belong
// to no cluster, are left out. All other endpoints are applied.
func TestEndpointsOfTheConsumerAlone(t *testing.T) {
	c := NewController(nil, nil, nil, Options{OwnRanges: own("10.244.0.0/16", "fd00:1::/32")})
	for address, allowed := range map[string]bool{
		"10.70.0.1": true, "fd00:2::1": true, "192.0.2.7": true,
		"127.0.0.1": false, "169.254.169.254": false, "0.0.0.0": false, "224.0.0.1": false,
		"10.244.03.4": false, "010.070.0.1": false, "0127.0.0.1": false, "169.254.169.0254": false, "kubernetes.default.svc": false, "10.70.0.1/32": false, "": false,
		"::1": false, "fe80::1": false, "::ffff:127.0.0.1": false, "10.244.3.4": false, "fd00:1::9": false,
	} {
		shadow := kind.New()
		shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
		shadow.Object["spec"] = map[string]any{"template": map[string]any{
			"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{address}}, map[string]any{"addresses": []any{"10.70.0.2"}}},
		}}
		slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", state{known: true, reachable: true}, allowanceFor(t, c, nil))
		require.NoError(t, err)
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
		if got := len(endpoints) == 2; got != allowed || (len(problems) == 0) != allowed {
			t.Errorf("%s: %d endpoints, problems %v", address, len(endpoints), problems)
		}
	}
}

// TestEndpointsWithinTheRangesOfTheConsumer checks that an endpoint is left out if its address belongs to neither this
// cluster nor the consumer. Such an address may belong to a third party, for example to another machine in the network
// of this cluster.
func TestEndpointsWithinTheRangesOfTheConsumer(t *testing.T) {
	ranges := map[string]ipmap.Ranges{"home": {netip.MustParsePrefix("10.70.0.0/16")}, "third": {netip.MustParsePrefix("10.90.0.0/16")}}
	without := map[string]ipmap.Ranges{"home": ranges["home"]}
	connected := state{known: true, reachable: true, networking: true}
	for name, tc := range map[string]struct {
		ranges  map[string]ipmap.Ranges
		from    state
		address string
		direct  string
		allowed bool
	}{
		"of the consumer":                        {ranges, state{known: true, reachable: true}, "10.70.0.1", "", true},
		"of a neighbour":                         {ranges, state{known: true, reachable: true}, "172.16.0.1", "", false},
		"of a third cluster":                     {ranges, connected, "10.90.0.1", "third", true},
		"a neighbour, called direct":             {ranges, connected, "172.16.0.1", "third", false},
		"a neighbour, called of some cluster":    {without, connected, "172.16.0.1", "nowhere", false},
		"of the network":                         {nil, connected, "10.70.0.1", "", true},
		"not of the network":                     {nil, connected, "172.16.0.1", "", false},
		"not of the network, allowed":            {map[string]ipmap.Ranges{"home": {netip.MustParsePrefix("172.16.0.0/12")}}, connected, "172.16.0.1", "", true},
		"without a network, as nothing is known": {nil, state{known: true, reachable: true}, "172.16.0.1", "", true},
		"ranges of another consumer are ignored": {map[string]ipmap.Ranges{"home": ranges["home"], "rome": {netip.MustParsePrefix("172.16.0.0/12")}}, connected, "172.16.0.1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := kind.New()
			shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
			if tc.direct != "" {
				shadow.SetAnnotations(map[string]string{wire.DirectConnectionsDataAnnotation: fmt.Sprintf(`{"clusterAddresses":{%q:[%q]}}`, tc.direct, tc.address)})
			}
			shadow.Object["spec"] = map[string]any{"template": map[string]any{"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{tc.address}}}}}
			c := NewController(nil, nil, nil, Options{AddressMapper: mapper{}, RangesOf: tc.ranges, OwnRanges: own()})
			allowed := allowanceFor(t, c, nil)
			allowed.rangesOf = func(cluster string) (ipmap.Ranges, error) { return tc.ranges[cluster], nil }
			slice, problems, err := c.forgeSlice(t.Context(), shadow, "home", tc.from, allowed)
			require.NoError(t, err)
			endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
			if got := len(endpoints) == 1; got != tc.allowed || (len(problems) == 0) != tc.allowed {
				t.Errorf("%d endpoints, problems %v", len(endpoints), problems)
			}
		})
	}
}
