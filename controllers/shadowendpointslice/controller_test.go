// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/test/support/testenv"
)

// provider is a cluster without a garbage collector, so only the controller deletes EndpointSlices.
var provider = controllertest.Cluster{
	ID: "provider",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true,
		ExtraControllerManagerArgs: []string{"--controllers=*,-garbage-collector-controller"}},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// Possible statuses of a ForeignCluster.
const (
	unobserved   = `{"status":{"modules":{"networking":{"enabled":false},"authentication":{"enabled":false},"offloading":{"enabled":false}}}}`
	noNetworking = `{"status":{"observedGeneration":1,"modules":{"networking":{"enabled":false},"authentication":{"enabled":false},"offloading":{"enabled":false}}}}`
	connected    = `{"status":{"observedGeneration":1,"modules":{"networking":{"enabled":true,"conditions":[{"type":"NetworkConnectionStatus","status":"Established"}]},"authentication":{"enabled":false},"offloading":{"enabled":false}}}}`
	disconnected = `{"status":{"observedGeneration":1,"modules":{"networking":{"enabled":true,"conditions":[{"type":"NetworkConnectionStatus","status":"Error"}]},"authentication":{"enabled":false},"offloading":{"enabled":false}}}}`
	serverUp     = `{"status":{"conditions":[{"type":"APIServerStatus","status":"Established"}]}}`
	serverDown   = `{"status":{"conditions":[{"type":"APIServerStatus","status":"Error"}]}}`
)

// cluster creates a ForeignCluster. The cluster is reachable, unless other statuses are given.
func cluster(t *testing.T, id string, statuses ...string) *core.ForeignCluster {
	t.Helper()
	fc := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: core.ForeignClusterSpec{ClusterID: core.ClusterID(id)}}
	provider.Create(t, fc)
	if len(statuses) == 0 {
		statuses = []string{noNetworking}
	}
	for _, status := range statuses {
		provider.PatchStatus(t, fc, status)
	}
	return fc
}

// shadowSlice returns a ShadowEndpointSlice with three endpoints: one that is ready, one that is not ready, and one
// without this condition.
func shadowSlice(namespace, name, origin string) *unstructured.Unstructured {
	shadow := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"addressType": "IPv4",
		"ports":       []any{map[string]any{"port": int64(80)}},
		"endpoints": []any{
			map[string]any{"addresses": []any{"10.1.0.1"}, "conditions": map[string]any{"ready": true, "serving": true, "terminating": false}, "zone": "a"},
			map[string]any{"addresses": []any{"10.1.0.2"}, "conditions": map[string]any{"ready": false, "serving": true, "terminating": true}},
			map[string]any{"addresses": []any{"10.1.0.3"}},
		},
	}}}}
	shadow.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowEndpointSliceKind))
	shadow.SetNamespace(namespace)
	shadow.SetName(name)
	shadow.SetLabels(map[string]string{
		wire.OriginLabel: origin, wire.DestinationLabel: "provider", discoveryv1.LabelServiceName: "web",
		wire.EndpointSliceManagedByLabel: wire.EndpointSliceManager,
	})
	return shadow
}

func awaitSlice(t *testing.T, namespace, name, what string, holds func(*discoveryv1.EndpointSlice) bool) *discoveryv1.EndpointSlice {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	controllertest.Eventually(t, what, func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, slice); err != nil {
			return err
		}
		if !holds(slice) {
			return fmt.Errorf("it is %v %v", slice.ObjectMeta, slice.Endpoints)
		}
		return nil
	})
	return slice
}

// ready returns, for each endpoint, whether it is ready.
func ready(slice *discoveryv1.EndpointSlice) [3]bool {
	var is [3]bool
	for i := range slice.Endpoints {
		is[i] = ptr.Deref(slice.Endpoints[i].Conditions.Ready, true)
	}
	return is
}

var (
	reachable   = [3]bool{true, false, true}
	unreachable = [3]bool{}
)

func awaitReady(t *testing.T, namespace, name string, want [3]bool) *discoveryv1.EndpointSlice {
	t.Helper()
	return awaitSlice(t, namespace, name, fmt.Sprintf("endpoints ready %v", want), func(s *discoveryv1.EndpointSlice) bool { return ready(s) == want })
}

func TestMakesTheEndpointSlice(t *testing.T) {
	namespace := provider.Extended(t, "made")
	cluster(t, "made")
	m := provider.StartManager(t)
	shadow := shadowSlice(namespace, "slice", "made")
	provider.Create(t, shadow)

	slice := awaitReady(t, namespace, "slice", reachable)
	if !metav1.IsControlledBy(slice, shadow) {
		t.Errorf("owners = %v, want the ShadowEndpointSlice as controller", slice.OwnerReferences)
	}
	if slice.Labels[wire.ManagedByLabel] != wire.ManagedByShadowEndpointSlice || slice.Labels[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("labels = %v", slice.Labels)
	}
	second := slice.Endpoints[1].Conditions
	if !*second.Serving || !*second.Terminating || *slice.Endpoints[0].Zone != "a" || *slice.Ports[0].Port != 80 {
		t.Errorf("endpoints = %v, ports = %v, want them as in the ShadowEndpointSlice", slice.Endpoints, slice.Ports)
	}
	if writes := m.Writes.About(namespace); len(writes) != 1 {
		t.Errorf("writes = %q, want one", writes)
	}
}

// TestDropsTrustedMetadata checks that labels and annotations that components of this cluster trust are left out and
// reported in an Event. The endpoints are still applied.
func TestDropsTrustedMetadata(t *testing.T) {
	namespace := provider.Extended(t, "trusted")
	cluster(t, "trusted")
	provider.StartManager(t)
	shadow := shadowSlice(namespace, "slice", "trusted")
	labels := shadow.GetLabels()
	labels["grafana_dashboard"], labels["app"] = "1", "web"
	shadow.SetLabels(labels)
	shadow.SetAnnotations(map[string]string{"service.cilium.io/global": "true", "note": "one"})
	provider.Create(t, shadow)
	slice := awaitReady(t, namespace, "slice", reachable)
	if slice.Labels["app"] != "web" || slice.Annotations["note"] != "one" {
		t.Errorf("labels = %v, annotations = %v, want the usual ones", slice.Labels, slice.Annotations)
	}
	if _, ok := slice.Labels["grafana_dashboard"]; ok {
		t.Errorf("labels = %v", slice.Labels)
	}
	if _, ok := slice.Annotations["service.cilium.io/global"]; ok {
		t.Errorf("annotations = %v", slice.Annotations)
	}
	event := provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "slice", "RefusedByProvider")
	if !strings.Contains(event.Note, "metadata.labels[grafana_dashboard]") {
		t.Errorf("the Event says %q", event.Note)
	}
}

func TestReadinessFollowsTheForeignCluster(t *testing.T) {
	namespace := provider.Extended(t, "flapping")
	provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "slice", "flapping"))
	awaitReady(t, namespace, "slice", unreachable)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "slice", "ForeignClusterNotFound")

	fc := cluster(t, "flapping", unobserved)
	for i, step := range []struct {
		status string
		want   [3]bool
	}{
		{noNetworking, reachable}, {disconnected, unreachable}, {connected, reachable},
		{serverDown, unreachable}, {serverUp, reachable},
	} {
		provider.PatchStatus(t, fc, step.status)
		slice := awaitReady(t, namespace, "slice", step.want)
		if !*slice.Endpoints[0].Conditions.Serving {
			t.Errorf("step %d: serving = false, want it kept", i)
		}
	}
	provider.Patch(t, fc, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.PermanentlyUnreachableAnnotation))
	awaitReady(t, namespace, "slice", unreachable)
	provider.Patch(t, fc, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, wire.PermanentlyUnreachableAnnotation))
	awaitReady(t, namespace, "slice", reachable)
	provider.Delete(t, fc)
	awaitReady(t, namespace, "slice", unreachable)
}

func TestAForeignClusterNobodyLookedAtSaysNothing(t *testing.T) {
	namespace := provider.Extended(t, "unobserved")
	fc := cluster(t, "unobserved", unobserved)
	provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "slice", "unobserved"))
	awaitReady(t, namespace, "slice", unreachable)
	provider.PatchStatus(t, fc, noNetworking)
	awaitReady(t, namespace, "slice", reachable)
}

func TestARestartAndAForeignChangeOfMindWriteNothing(t *testing.T) {
	namespace := provider.Extended(t, "calm")
	fc := cluster(t, "calm")
	first := provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "slice", "calm"))
	awaitReady(t, namespace, "slice", reachable)
	first.Stop(t)

	second := provider.StartManager(t)
	provider.PatchStatus(t, fc, serverUp) // the heartbeat changes, but the reachability does not
	provider.Create(t, shadowSlice(namespace, "later", "calm"))
	awaitReady(t, namespace, "later", reachable)
	if writes := second.Writes.About(namespace); len(writes) != 1 {
		t.Errorf("writes = %q, want none but the creation of the new slice", writes)
	}
}

// TestChangesOfOthersStayUntilOthersAreAskedFor checks that changes that other clients make to an EndpointSlice are
// kept until the desired value of the field changes. A deleted EndpointSlice is created again.
func TestChangesOfOthersStayUntilOthersAreAskedFor(t *testing.T) {
	namespace := provider.Extended(t, "drifting")
	cluster(t, "drifting")
	first := provider.StartManager(t)
	shadow := shadowSlice(namespace, "slice", "drifting")
	provider.Create(t, shadow)
	slice := awaitReady(t, namespace, "slice", reachable)
	provider.Patch(t, slice, fmt.Sprintf(`{"ports":[{"port":8080}],"metadata":{"labels":{"theirs":"1",%q:"other"}}}`, wire.OriginLabel))
	awaitSlice(t, namespace, "slice", "the origin to be back", func(s *discoveryv1.EndpointSlice) bool { return s.Labels[wire.OriginLabel] == "drifting" })
	first.Stop(t)
	second := provider.StartManager(t)

	provider.Patch(t, shadow, `{"metadata":{"labels":{"kubernetes.io/service-name":"other"}}}`)
	slice = awaitSlice(t, namespace, "slice", "the other Service", func(s *discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelServiceName] == "other" })
	if slice.Labels["theirs"] != "1" || *slice.Ports[0].Port != 8080 || len(slice.Endpoints) != 3 {
		t.Errorf("slice = %v, want the labels and ports of others", slice)
	}
	provider.Patch(t, shadow, `{"spec":{"template":{"ports":[{"port":81}]}}}`)
	awaitSlice(t, namespace, "slice", "the other port", func(s *discoveryv1.EndpointSlice) bool { return *s.Ports[0].Port == 81 })
	if writes := second.Writes.About("PATCH", namespace, "/endpointslices/slice"); len(writes) != 2 {
		t.Errorf("writes = %q, want one for each change", writes)
	}
	provider.Delete(t, slice)
	awaitSlice(t, namespace, "slice", "the slice to be back", func(s *discoveryv1.EndpointSlice) bool { return s.UID != slice.UID })
}

// TestEndpointSlicesOfAnEarlierVersion checks that an EndpointSlice of an earlier version follows its
// ShadowEndpointSlice, and that the upgrade itself does not cause a write.
func TestEndpointSlicesOfAnEarlierVersion(t *testing.T) {
	namespace := provider.Extended(t, "former")
	cluster(t, "former")
	first := provider.StartManager(t)
	shadow := shadowSlice(namespace, "slice", "former")
	provider.Create(t, shadow)
	slice := awaitReady(t, namespace, "slice", reachable)
	first.Stop(t)
	provider.Patch(t, slice, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, asked.Annotation))
	second := provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "another", "former"))
	awaitReady(t, namespace, "another", reachable)
	if writes := second.Writes.About("PATCH", namespace, "/endpointslices/slice"); len(writes) > 0 {
		t.Errorf("writes = %q, want none because of the upgrade", writes)
	}
	provider.Patch(t, shadow, `{"spec":{"template":{"ports":[{"port":81}]}}}`)
	slice = awaitSlice(t, namespace, "slice", "the other port", func(s *discoveryv1.EndpointSlice) bool { return *s.Ports[0].Port == 81 })
	if asked.Read(slice.Annotations) == nil {
		t.Errorf("annotations = %v, want a record", slice.Annotations)
	}
}

func TestAForeignEndpointSliceIsLeftAlone(t *testing.T) {
	namespace := provider.Extended(t, "crowded")
	cluster(t, "crowded")
	theirs := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "taken"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}},
	}
	provider.Create(t, theirs)
	before := theirs.ResourceVersion
	m := provider.StartManager(t)
	shadow := shadowSlice(namespace, "taken", "crowded")
	provider.Create(t, shadow)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "taken", "FailedCreateEndpointSlice")
	provider.Get(t, theirs, namespace, "taken")
	if theirs.ResourceVersion != before || len(m.Writes.About("PATCH", namespace)) > 0 {
		t.Errorf("the foreign slice was written to: %q", m.Writes.About(namespace))
	}
	provider.Delete(t, theirs)
	awaitReady(t, namespace, "taken", reachable)
}

func TestMalformedSlicesAreReportedAndStopNothingElse(t *testing.T) {
	namespace := provider.Extended(t, "careless")
	cluster(t, "careless")
	provider.StartManager(t)
	withoutOrigin := shadowSlice(namespace, "no-origin", "careless")
	withoutOrigin.SetLabels(nil)
	provider.Create(t, withoutOrigin)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "no-origin", "MissingOrigin")

	malformed := shadowSlice(namespace, "malformed", "careless")
	require.NoError(t, unstructured.SetNestedField(malformed.Object, "none", "spec", "template", "endpoints"))
	provider.Create(t, malformed)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "malformed", "FailedUpdateEndpointSlice")

	refused := shadowSlice(namespace, "refused", "careless")
	require.NoError(t, unstructured.SetNestedField(refused.Object, []any{map[string]any{"addresses": []any{"not an address"}}}, "spec", "template", "endpoints"))
	provider.Create(t, refused)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "refused", "ForbiddenAddress")

	unspoken := shadowSlice(namespace, "unknown-protocol", "careless")
	require.NoError(t, unstructured.SetNestedField(unspoken.Object, []any{map[string]any{"port": int64(80), "protocol": "NONE"}}, "spec", "template", "ports"))
	provider.Create(t, unspoken)
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "unknown-protocol", "FailedCreateEndpointSlice")

	provider.Create(t, shadowSlice(namespace, "fine", "careless"))
	awaitReady(t, namespace, "fine", reachable)
}

// TestARefusedUpdateIsReportedAndNotRepeated checks that a refused update, such as a change to the immutable address
// type, is reported once and not repeated.
func TestARefusedUpdateIsReportedAndNotRepeated(t *testing.T) {
	namespace := provider.Extended(t, "renumbered")
	cluster(t, "renumbered")
	m := provider.StartManager(t)
	shadow := shadowSlice(namespace, "slice", "renumbered")
	provider.Create(t, shadow)
	slice := awaitReady(t, namespace, "slice", reachable)
	provider.Patch(t, shadow, `{"spec":{"template":{"addressType":"IPv6","endpoints":[{"addresses":["fd00::1"]}]}}}`)
	event := provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "slice", "FailedUpdateEndpointSlice")
	if !strings.Contains(event.Note, "addressType") || !strings.Contains(event.Note, "delete the EndpointSlice") {
		t.Errorf("note = %q, want the field and the remedy", event.Note)
	}
	provider.Patch(t, slice, `{"metadata":{"annotations":{"touched":"1"}}}`)
	provider.Create(t, shadowSlice(namespace, "later", "renumbered"))
	awaitReady(t, namespace, "later", reachable)
	if writes := m.Writes.About("PATCH", namespace, "/endpointslices/slice"); len(writes) != 1 {
		t.Errorf("writes = %q, want one attempt", writes)
	}
	provider.Delete(t, slice)
	awaitSlice(t, namespace, "slice", "the slice recreated", func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == discoveryv1.AddressTypeIPv6 })
}

// TestEndpointsInTheNameOfAnother checks that a consumer gets no EndpointSlice if it uses the ID of another consumer to
// get its ranges or its reachability.
func TestEndpointsInTheNameOfAnother(t *testing.T) {
	namespace, foreign := provider.Extended(t, "honest"), provider.Namespace(t)
	cluster(t, "honest")
	cluster(t, "impersonated")
	provider.StartManager(t)
	provider.Create(t, shadowSlice(namespace, "forged", "impersonated"))
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "forged", "ForeignOrigin")
	provider.Create(t, shadowSlice(foreign, "elsewhere", "honest"))
	provider.AwaitEvent(t, foreign, "ShadowEndpointSlice", "elsewhere", "ForeignOrigin")
	provider.Create(t, shadowSlice(namespace, "own", "honest"))
	awaitReady(t, namespace, "own", reachable)
	for _, key := range []types.NamespacedName{{Namespace: namespace, Name: "forged"}, {Namespace: foreign, Name: "elsewhere"}} {
		if err := provider.Client.Get(t.Context(), key, &discoveryv1.EndpointSlice{}); !apierrors.IsNotFound(err) {
			t.Errorf("EndpointSlice %s: %v, want none", key, err)
		}
	}
}

// TestOwnRangesAreKnown checks that the ranges of Services, nodes and their pods are read from the API server, so that
// no flag is needed.
func TestOwnRangesAreKnown(t *testing.T) {
	namespace := provider.Extended(t, "curious")
	cluster(t, "curious")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "with-ranges"}, Spec: corev1.NodeSpec{PodCIDR: "10.55.0.0/24", PodCIDRs: []string{"10.55.0.0/24"}}}
	provider.Create(t, node)
	provider.StartManager(t)
	service := &corev1.Service{}
	provider.Get(t, service, "default", "kubernetes")
	shadow := shadowSlice(namespace, "spy", "curious")
	endpoints := []any{}
	for _, address := range []string{service.Spec.ClusterIP, "10.55.0.7", "10.56.0.7"} {
		endpoints = append(endpoints, map[string]any{"addresses": []any{address}})
	}
	require.NoError(t, unstructured.SetNestedSlice(shadow.Object, endpoints, "spec", "template", "endpoints"))
	provider.Create(t, shadow)
	only := func(want ...string) func(*discoveryv1.EndpointSlice) bool {
		return func(slice *discoveryv1.EndpointSlice) bool {
			var got []string
			for i := range slice.Endpoints {
				got = append(got, slice.Endpoints[i].Addresses...)
			}
			return slices.Equal(want, got)
		}
	}
	awaitSlice(t, namespace, "spy", "the endpoints of the consumer alone", only("10.56.0.7"))

	// The range of a node that is added later is also known.
	provider.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "added-later"}, Spec: corev1.NodeSpec{PodCIDR: "10.56.0.0/24", PodCIDRs: []string{"10.56.0.0/24"}}})
	awaitSlice(t, namespace, "spy", "no endpoint", only())
}

func TestDirectConnections(t *testing.T) {
	namespace := provider.Extended(t, "director")
	cluster(t, "director")
	provider.StartManager(t, func(o *controllers.Options) { o.DenyDirectConnections = true })
	shadow := shadowSlice(namespace, "direct", "director")
	shadow.SetAnnotations(map[string]string{wire.DirectConnectionsDataAnnotation: `{"clusterAddresses":{"third":["10.1.0.1"]}}`, "kept": "1"})
	provider.Create(t, shadow)
	slice := awaitSlice(t, namespace, "direct", "the denied endpoint to be left out", func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 2 })
	if _, ok := slice.Annotations[wire.DirectConnectionsDataAnnotation]; ok || slice.Annotations["kept"] != "1" {
		t.Errorf("annotations = %v, want all but the data of direct connections", slice.Annotations)
	}

	provider.Patch(t, shadow, fmt.Sprintf(`{"metadata":{"annotations":{%q:"{"}}}`, wire.DirectConnectionsDataAnnotation))
	provider.AwaitEvent(t, namespace, "ShadowEndpointSlice", "direct", "InvalidDirectConnections")
	awaitReady(t, namespace, "direct", unreachable)
}
