// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{
	ID:      "provider",
	Options: testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// parse parses an object in YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

func definition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("testdata/configurations.yaml")
	require.NoError(t, err)
	return parse(t, string(text))
}

// undefine removes the resource of the network module from the cluster.
func undefine(t *testing.T) {
	t.Helper()
	crd := definition(t)
	if err := provider.Client.Delete(t.Context(), crd); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	provider.AwaitGone(t, crd)
}

// define installs the parts of the network module that the tests need.
func define(t *testing.T) {
	t.Helper()
	if err := provider.Client.Create(t.Context(), definition(t)); err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "Configurations to be served", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("networking.liqo.io/v1beta1")
		list.SetKind("ConfigurationList")
		return provider.Client.List(t.Context(), list)
	})
}

// configure creates the Configuration of a cluster, or changes its ranges. cidrs contains the pod ranges, followed by
// the external ranges. The remapped ranges are not set.
func configure(t *testing.T, namespace, cluster, cidrs string) *unstructured.Unstructured {
	t.Helper()
	configuration := parse(t, fmt.Sprintf(`
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: %s, namespace: %s, labels: {liqo.io/remote-cluster-id: %s}}
spec: {remote: {cidr: %s}}`, cluster, namespace, cluster, cidrs))
	if err := provider.Client.Create(t.Context(), configuration); err == nil {
		return configuration
	}
	provider.Patch(t, configuration, string(must(yaml.YAMLToJSON([]byte(fmt.Sprintf(`{spec: {remote: {cidr: %s}}}`, cidrs))))(t)))
	return configuration
}

// remap sets the remapped ranges of a Configuration, so that it is complete.
func remap(t *testing.T, configuration *unstructured.Unstructured, cidrs string) {
	t.Helper()
	provider.PatchStatus(t, configuration, string(must(yaml.YAMLToJSON([]byte(fmt.Sprintf(
		`{status: {remote: {cidr: %s}, conditions: [{type: NetworkCIDRsConfigured, status: "True", reason: NetworkCIDRsConfigured, observedGeneration: %d}]}}`,
		cidrs, configuration.GetGeneration()))))(t)))
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// peer creates a ForeignCluster with a reachable API server.
func peer(t *testing.T, id string, networking bool) {
	t.Helper()
	fc := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: core.ForeignClusterSpec{ClusterID: core.ClusterID(id)}}
	provider.Create(t, fc)
	provider.PatchStatus(t, fc, fmt.Sprintf(`{"status":{"observedGeneration":1,"modules":{"networking":{"enabled":%t,"conditions":[{"type":"NetworkConnectionStatus","status":"Established"}]},"authentication":{"enabled":false},"offloading":{"enabled":false}}}}`, networking))
}

// shadow creates a ShadowEndpointSlice with one endpoint per address.
func shadow(t *testing.T, namespace, name, origin, direct string, addresses ...string) *unstructured.Unstructured {
	t.Helper()
	var endpoints []any
	for _, address := range addresses {
		endpoints = append(endpoints, map[string]any{"addresses": []any{address}})
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"addressType": "IPv4", "endpoints": endpoints}}}}
	object.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowEndpointSliceKind))
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{wire.OriginLabel: origin, wire.DestinationLabel: "provider"})
	if direct != "" {
		object.SetAnnotations(map[string]string{wire.DirectConnectionsDataAnnotation: direct})
	}
	provider.Create(t, object)
	return object
}

// awaitAddresses waits until the EndpointSlice has exactly these endpoints.
func awaitAddresses(t *testing.T, namespace, name string, want ...string) *discoveryv1.EndpointSlice {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	controllertest.Eventually(t, fmt.Sprintf("endpoints at %q", want), func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, slice); err != nil {
			return err
		}
		var got []string
		for i := range slice.Endpoints {
			got = append(got, slice.Endpoints[i].Addresses...)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are at %q", got)
		}
		return nil
	})
	return slice
}

// awaitNote waits for an Event whose note contains text.
func awaitNote(t *testing.T, namespace, kind, name, reason, text string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("an Event %s with %q about %s", reason, text, name), func() error {
		var notes []string
		for _, event := range provider.Events(t, namespace, kind, name) {
			notes = append(notes, event.Reason+": "+event.Note)
			if event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("there are %q", notes)
	})
}

const sliceKind = offloading.ShadowEndpointSliceKind

// TestAddressesFollowTheNetworkModule checks that addresses are unchanged until the network module is installed, and
// then follow each change of the module's Configurations. While a Configuration is incomplete, the previous addresses
// must stay.
func TestAddressesFollowTheNetworkModule(t *testing.T) {
	undefine(t)
	namespace := provider.Extended(t, "home")
	peer(t, "home", true)
	first := provider.StartManager(t)
	shadow(t, namespace, "slice", "home", "", "10.0.0.1", "10.1.0.2", "10.70.0.3", "192.0.2.1")
	before := awaitAddresses(t, namespace, "slice", "10.0.0.1", "10.1.0.2", "10.70.0.3", "192.0.2.1")

	define(t)
	awaitNote(t, namespace, sliceKind, "slice", "NetworkNotConnected", "cluster home")
	home := configure(t, namespace, "home", "{pod: [10.0.0.0/16, 10.1.0.0/16], external: [10.70.0.0/16]}")
	awaitNote(t, namespace, sliceKind, "slice", "NetworkNotConfigured", "status.remote.cidr.pod has 0 of 2 ranges")
	if now := awaitAddresses(t, namespace, "slice", "10.0.0.1", "10.1.0.2", "10.70.0.3", "192.0.2.1"); now.ResourceVersion != before.ResourceVersion {
		t.Error("the EndpointSlice was written while nothing was known")
	}
	remap(t, home, "{pod: [10.30.0.0/16, 10.31.0.0/16], external: [10.80.0.0/16]}")
	// The last address does not belong to the consumer, so it is omitted.
	before = awaitAddresses(t, namespace, "slice", "10.30.0.1", "10.31.0.2", "10.80.0.3")
	awaitNote(t, namespace, sliceKind, "slice", "ForbiddenAddress", "192.0.2.1")

	home = configure(t, namespace, "home", "{pod: [10.0.0.0/16], external: [10.70.0.0/16]}")
	shadow(t, namespace, "meanwhile", "home", "", "10.0.0.8")
	awaitNote(t, namespace, sliceKind, "meanwhile", "NetworkNotConfigured", "of an earlier spec")
	if now := awaitAddresses(t, namespace, "slice", "10.30.0.1", "10.31.0.2", "10.80.0.3"); now.ResourceVersion != before.ResourceVersion {
		t.Error("the EndpointSlice was written while a Configuration was incomplete")
	}
	remap(t, home, "{pod: [10.32.0.0/16], external: [10.80.0.0/16]}")
	awaitAddresses(t, namespace, "slice", "10.32.0.1", "10.80.0.3")
	awaitAddresses(t, namespace, "meanwhile", "10.32.0.8")

	first.Stop(t)
	second := provider.StartManager(t)
	shadow(t, namespace, "later", "home", "", "10.0.0.9")
	awaitAddresses(t, namespace, "later", "10.32.0.9")
	writes := slices.DeleteFunc(second.Writes.About(namespace), func(write string) bool { return strings.HasSuffix(write, "/events") })
	if len(writes) != 1 {
		t.Errorf("writes after a restart = %q, want none but the creation of the new slice, and Events", writes)
	}
	undefine(t)
	awaitAddresses(t, namespace, "slice", "10.0.0.1", "10.1.0.2", "10.70.0.3", "192.0.2.1")
}

// TestDirectConnectionsAreMappedByTheThirdCluster checks that endpoints in a third cluster are mapped with the network
// of that cluster, even if the network of the consumer is unknown. An address in none of the third cluster's pod ranges
// must be omitted and reported.
func TestDirectConnectionsAreMappedByTheThirdCluster(t *testing.T) {
	define(t)
	namespace := provider.Extended(t, "director")
	peer(t, "director", false)
	provider.StartManager(t)
	turin := configure(t, namespace, "turin", "{pod: [10.0.0.0/16, 10.1.0.0/16], external: [10.70.0.0/16]}")
	remap(t, turin, "{pod: [10.30.0.0/16, 10.31.0.0/16], external: [10.80.0.0/16]}")
	shadow(t, namespace, "slice", "director", `{"clusterAddresses":{"turin":["10.0.0.1","10.1.0.2","10.70.0.3"],"naples":["10.0.0.4"]}}`,
		"10.0.0.1", "10.1.0.2", "10.70.0.3", "10.0.0.4", "10.0.0.5")
	slice := awaitAddresses(t, namespace, "slice", "10.30.0.1", "10.31.0.2", "10.0.0.5")
	if _, ok := slice.Annotations[wire.DirectConnectionsDataAnnotation]; ok {
		t.Errorf("annotations = %v, want the data left out", slice.Annotations)
	}
	awaitNote(t, namespace, sliceKind, "slice", "NoDirectConnection", "ignored endpoint 2")
	awaitNote(t, namespace, sliceKind, "slice", "NoDirectConnection", "cluster turin")

	naples := configure(t, namespace, "naples", "{pod: [10.0.0.0/16]}")
	remap(t, naples, "{pod: [10.40.0.0/16]}")
	awaitAddresses(t, namespace, "slice", "10.30.0.1", "10.31.0.2", "10.40.0.4", "10.0.0.5")
}

// TestTheAPIServerIsMapped checks that the host alias for the consumer's API server is mapped like the addresses of
// pods. A pod must not be created before the mapping is known, unless the clusters share a network that Liqo does not
// manage.
func TestTheAPIServerIsMapped(t *testing.T) {
	define(t)
	namespaces := map[string]string{"far": provider.Extended(t, "connected"), "near": provider.Extended(t, "shared")}
	peer(t, "connected", true)
	peer(t, "shared", false)
	provider.StartManager(t)
	aliased := func(name, origin string) {
		t.Helper()
		provider.Create(t, parse(t, fmt.Sprintf(`
apiVersion: offloading.liqo.io/v1beta1
kind: ShadowPod
metadata: {name: %s, namespace: %s, labels: {%s: %s, %s: provider}}
spec:
  pod:
    containers: [{name: main, image: "registry.example/main:1"}]
    hostAliases: [{ip: 10.70.0.7, hostnames: [kubernetes.default, kubernetes.default.svc]}, {ip: 10.70.0.8, hostnames: [other]}]`,
			name, namespaces[name], wire.OriginLabel, origin, wire.DestinationLabel)))
	}
	awaitAliases := func(name string, want ...string) {
		t.Helper()
		controllertest.Eventually(t, fmt.Sprintf("pod %s with host aliases %q", name, want), func() error {
			pod := &corev1.Pod{}
			if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespaces[name], Name: name}, pod); err != nil {
				return err
			}
			var got []string
			for _, alias := range pod.Spec.HostAliases {
				got = append(got, alias.IP)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("they are %q", got)
			}
			return nil
		})
	}
	aliased("far", "connected")
	aliased("near", "shared")
	awaitAliases("near", "10.70.0.7", "10.70.0.8")
	awaitNote(t, namespaces["far"], offloading.ShadowPodKind, "far", wire.FailedCreatePodReason, "cluster connected")
	remap(t, configure(t, namespaces["far"], "connected", "{external: [10.70.0.0/16]}"), "{external: [10.80.0.0/16]}")
	awaitAliases("far", "10.80.0.7", "10.70.0.8")
}
