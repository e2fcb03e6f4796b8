// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/sdk/plugintest"
)

// testIngressStatusAccepted checks that the consumer's API server accepts the reflected addresses of the provider's
// Ingress. An address without a translation must be removed with a warning.
func testIngressStatusAccepted(t *testing.T, api dynamic.Interface) {
	module := plugintest.Open(t, "ingress/ingress.wasm")
	client := api.Resource(ingresses).Namespace(consumer)
	local := create(t, client, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: status}\n"+
		"spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n")
	theirs := local.DeepCopy()
	theirs.Object["status"] = parse(t, `{loadBalancer: {ingress: [{ip: 203.0.113.9, ports: [{port: 80, protocol: TCP, error: example.com/Busy}]},
		{hostname: lb.example.com}, {ip: 10.3.0.7}, {ip: 10.3.0.8}, {ip: "2001:db8::1"}]}}`).Object
	env := context("Disabled")
	env["local"] = local.Object
	out := module.Run(t, plugintest.Case{Hook: host.Incoming, Object: theirs.Object, Context: env, Remap: map[string]any{
		"203.0.113.9": "203.0.113.9", "10.3.0.7": "10.71.0.7", "2001:db8::1": "2001:db8::1",
	}})
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	after := showStatus(t, client, local, out.Object["status"])
	if list, _, _ := unstructured.NestedSlice(after.Object, "status", "loadBalancer", "ingress"); len(list) != 4 {
		t.Errorf("the status has %d addresses, want the 4 that mean something here: %v", len(list), list)
	}
	if len(out.Warnings) != 1 {
		t.Errorf("the address without counterpart gives the warnings %q, want one", out.Warnings)
	}
}

// testClaimStatusAccepted checks that the consumer's API server accepts the reflected status of a claim in each step of
// resizing its volume.
func testClaimStatusAccepted(t *testing.T, api dynamic.Interface) {
	module := plugintest.Open(t, "persistentvolumeclaim/persistentvolumeclaim.wasm")
	client := api.Resource(resource("persistentvolumeclaims")).Namespace(consumer)
	local := create(t, client, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: status}\n"+
		"spec: {accessModes: [ReadWriteOnce], storageClassName: liqo, resources: {requests: {storage: 5Gi}}}\n")
	local.Object["status"] = parse(t, "{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}}").Object
	for step, test := range map[string]struct{ theirs, capacity string }{
		"pending":   {"{phase: Pending}", "5Gi"},
		"bound":     {"{phase: Bound, accessModes: [ReadWriteMany], capacity: {storage: 8Gi}}", "8Gi"},
		"resizing":  {resize("ControllerResizeInProgress", "Resizing"), "5Gi"},
		"in-pod":    {resize("NodeResizePending", "FileSystemResizePending"), "5Gi"},
		"failed":    {resize("ControllerResizeInfeasible", "ControllerResizeError"), "5Gi"},
		"of-others": {"{phase: Lost, capacity: {storage: 9Gi}, currentVolumeAttributesClassName: gold}", "9Gi"},
	} {
		t.Run(step, func(t *testing.T) {
			theirs := local.DeepCopy()
			theirs.Object["status"] = parse(t, test.theirs).Object
			env := context("Disabled")
			env["local"] = local.Object
			out := module.Run(t, plugintest.Case{Hook: host.Incoming, Object: theirs.Object, Context: env})
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			after := showStatus(t, client, local, out.Object["status"])
			capacity, _, _ := unstructured.NestedString(after.Object, "status", "capacity", "storage")
			phase, _, _ := unstructured.NestedString(after.Object, "status", "phase")
			if capacity != test.capacity || phase != "Bound" {
				t.Errorf("the claim is %s with %s, want Bound with %s", phase, capacity, test.capacity)
			}
		})
	}
}

// resize returns the status of a claim that is being resized.
func resize(progress, condition string) string {
	return `{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}, allocatedResources: {storage: 10Gi},
		allocatedResourceStatuses: {storage: ` + progress + `}, conditions: [{type: ` + condition + `, status: "True",
		lastProbeTime: null, lastTransitionTime: "2025-01-01T00:00:00Z", message: m}]}`
}

// showStatus updates the status of an object as a dry run.
func showStatus(t *testing.T, client dynamic.ResourceInterface, local *unstructured.Unstructured, status any) *unstructured.Unstructured {
	t.Helper()
	object := local.DeepCopy()
	object.Object["status"] = status
	object.SetResourceVersion("") // an update without a resourceVersion is unconditional
	options := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	taken, err := client.UpdateStatus(t.Context(), object, options)
	if err != nil {
		text, _ := yaml.Marshal(status)
		t.Fatalf("the API server refuses the status: %v\n%s", err, text)
	}
	return taken
}

// testEventsAccepted checks that the consumer's API server accepts the reflected Events of the provider.
func testEventsAccepted(t *testing.T, api dynamic.Interface) {
	module := plugintest.Open(t, "event/event.wasm")
	events := resource("events")
	env := context("Disabled")
	env["involved"] = map[string]any{
		"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": consumer, "uid": "11111111-0000-4000-8000-000000000001", "resourceVersion": "7",
	}
	for _, object := range documents(t, "events") {
		t.Run(object.GetName(), func(t *testing.T) {
			theirs := take(t, api, events, provider, object)
			out := module.Run(t, plugintest.Case{Hook: host.Incoming, Object: theirs.Object, Context: env})
			if out.Object == nil {
				t.Fatalf("it does not cross: %s%v", out.SkipReason, out.Err)
			}
			ours := take(t, api, events, consumer, wrap(out.Object))
			for _, field := range []string{"source", "reportingComponent", "reportingInstance"} {
				if diff := cmp.Diff(theirs.Object[field], ours.Object[field]); diff != "" {
					t.Errorf("%s (-provider +consumer):\n%s", field, diff)
				}
			}
		})
	}
}
