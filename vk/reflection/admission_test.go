// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// admit installs an admission policy of the provider that changes new objects of a resource in the remote namespace.
// patches is a CEL list of JSON patches. probe is an object in YAML to which the policy applies: admit creates it as a
// dry run until check returns nil for the result.
func (l *lab) admit(group, resource, patches, probe string, check func(*unstructured.Unstructured) error) {
	l.Helper()
	l.admitOn("CREATE", group, resource, patches, probe, check)
}

// admitOn installs an admission policy as admit does, but for the given operations.
func (l *lab) admitOn(operations, group, resource, patches, probe string, check func(*unstructured.Unstructured) error) {
	l.Helper()
	tried := &unstructured.Unstructured{}
	require.NoError(l, yaml.Unmarshal([]byte(probe), &tried.Object))
	name := fmt.Sprintf("admit-%s-%s", resource, l.RemoteNS)
	l.Remote.Create(l.T, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %s}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{operations: [%s], apiGroups: [%q], apiVersions: ["*"], resources: [%s]}]}
  matchConditions: [{name: probed, expression: request.namespace == "%s" && object.metadata.name == "%s"}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '%s'}}]
`, name, operations, group, resource, l.RemoteNS, tried.GetName(), patches))
	l.Remote.Create(l.T, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s}}`, name, name))
	l.Eventually(func() error {
		created, err := l.Remote.Of(tried.GetKind(), l.RemoteNS).Create(l.Context(), tried, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		return check(created)
	})
}

// patchAs patches an object as another client. manager is its field manager.
func (l *lab) patchAs(manager, kind, name, change string) {
	l.Helper()
	patch, err := yaml.YAMLToJSON([]byte(change))
	require.NoError(l, err)
	_, err = l.Remote.Of(kind, l.RemoteNS).Patch(l.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	require.NoError(l, err)
}

func targetPort(want int64) func(*unstructured.Unstructured) error {
	return func(service *unstructured.Unstructured) error {
		ports, _, err := unstructured.NestedSlice(service.Object, "spec", "ports")
		if err == nil && ports[0].(map[string]any)["targetPort"] != want {
			err = fmt.Errorf("the ports are %v, want targetPort %d", ports, want)
		}
		return err
	}
}

const admittedService = `
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web, tier: home}, annotations: {note: home, stripped: home}}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}`

// TestAdmissionOfTheProviderStands checks that a change that the provider's admission has made to a new Service stays
// when another field of the local Service changes, even after a restart, and is overwritten when the same field of
// the local Service changes. A change by another client must still be reverted.
func TestAdmissionOfTheProviderStands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	decided := []func(*unstructured.Unstructured) error{
		reflectiontest.Field("metadata.labels/tier", "cloud"), reflectiontest.Field("metadata.annotations/stripped", ""), targetPort(9090),
	}
	l.admit("", "services", `[JSONPatch{op: "replace", path: "/metadata/labels/tier", value: "cloud"}, JSONPatch{op: "remove", path: "/metadata/annotations/stripped"},
    JSONPatch{op: "replace", path: "/spec/ports/0/targetPort", value: 9090}]`, admittedService, decided[0])
	with := func(more ...func(*unstructured.Unstructured) error) []func(*unstructured.Unstructured) error {
		return append(more, decided...)
	}
	l.Local.Create(t, l.Namespace, admittedService)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", decided...)
	l.Settled()
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {note: changed}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", with(reflectiontest.Field("metadata.annotations/note", "changed"))...)

	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", with(reflectiontest.Field("spec.sessionAffinity", "ClientIP"))...)
	l.Settled()

	l.patchAs("gitops", "Service", "web", `{spec: {selector: {app: other}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", with(reflectiontest.Field("spec.selector.app", "web"))...)
	l.patchAs("gitops", "Service", "web", `{metadata: {labels: {tier: theirs}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", "home"), decided[1], decided[2])

	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {stripped: again}}, spec: {ports: [{name: http, port: 80, targetPort: 8081}]}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/stripped", "again"), targetPort(8081))
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/"+admitted.Annotation, ""))
}

// TestAdmissionOfConfigurationStands checks that changes by admission are kept for kinds whose content is not cached.
// In the test, admission replaces one key and adds another one.
func TestAdmissionOfConfigurationStands(t *testing.T) {
	t.Parallel()
	l := newLab(t, configuration(t))
	const config = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {registry: home, level: info}}`
	decided := reflectiontest.Field("data.registry", "mirror")
	added := reflectiontest.Field("data.zone", "cloud-1")
	l.admit("", "configmaps", `[JSONPatch{op: "replace", path: "/data/registry", value: "mirror"}, JSONPatch{op: "add", path: "/data/zone", value: "cloud-1"}]`, config, decided)
	l.Local.Create(t, l.Namespace, config)
	l.Start()
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", decided, added)
	l.Settled()
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "settings", `{data: {level: debug}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", reflectiontest.Field("data.level", "debug"), decided, added)
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.patchAs("gitops", "ConfigMap", "settings", `{data: {level: warn}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", reflectiontest.Field("data.level", "debug"), decided, added)
	l.Local.PatchYAML(t, "ConfigMap", l.Namespace, "settings", `{data: {registry: elsewhere}}`)
	l.Present(l.Remote, "ConfigMap", l.RemoteNS, "settings", reflectiontest.Field("data.registry", "elsewhere"), added)
}

// TestAdmissionIsFoundWithoutARecord checks that the owner of a value is determined from the field managers if a copy
// has no record: an earlier version wrote the copy, or the response to the write was lost.
func TestAdmissionIsFoundWithoutARecord(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	decided := reflectiontest.Field("metadata.labels/tier", "cloud")
	l.admit("", "services", `[JSONPatch{op: "replace", path: "/metadata/labels/tier", value: "cloud"}]`, admittedService, decided)
	l.Local.Create(t, l.Namespace, admittedService)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", decided, func(o *unstructured.Unstructured) error {
		if o.GetAnnotations()[admitted.Annotation] == "" {
			return fmt.Errorf("no record among %v", o.GetAnnotations())
		}
		return nil
	})
	l.Stop()
	l.patchAs("gitops", "Service", "web", fmt.Sprintf(`{metadata: {annotations: {%s: null, note: theirs}}}`, admitted.Annotation))
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/note", "home"), decided)
	l.Settled()
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.sessionAffinity", "ClientIP"), decided)
	for _, event := range l.Events(l.Namespace, "Service", "web") {
		if strings.Contains(event, "Quarantined") {
			t.Error(event)
		}
	}
}

// TestAdmissionAddsNoItemsOfOthers checks that a port that another client adds to the copy continues to belong to
// that client. Later local changes are written without the port, and a restart writes nothing.
func TestAdmissionAddsNoItemsOfOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	decided := reflectiontest.Field("metadata.labels/tier", "cloud")
	l.admit("", "services", `[JSONPatch{op: "replace", path: "/metadata/labels/tier", value: "cloud"}]`, admittedService, decided)
	l.Local.Create(t, l.Namespace, admittedService)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", decided)
	l.Settled()
	mesh, err := yaml.YAMLToJSON(fmt.Appendf(nil, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: %s}, spec: {ports: [{name: mesh, port: 15000}]}}`, l.RemoteNS))
	require.NoError(t, err)
	_, err = l.Remote.Of("Service", l.RemoteNS).Patch(l.Context(), "web", types.ApplyYAMLPatchType, mesh, metav1.PatchOptions{FieldManager: "mesh"})
	require.NoError(t, err)
	l.Settled()
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {note: changed}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/note", "changed"), decided)
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.sessionAffinity", "ClientIP"), decided, func(service *unstructured.Unstructured) error {
		if ports, _, err := unstructured.NestedSlice(service.Object, "spec", "ports"); err != nil || len(ports) != 2 {
			return fmt.Errorf("the ports are %v, want that of the other client, too", ports)
		}
		for _, entry := range service.GetManagedFields() {
			if entry.Manager != "mesh" && strings.Contains(entry.FieldsV1.String(), "15000") {
				return fmt.Errorf("%s owns the port of the other client", entry.Manager)
			}
		}
		return nil
	})
}

const admittedPod = `
apiVersion: offloading.liqo.io/v1beta1
kind: ShadowPod
metadata: {name: web, labels: {tier: home}, annotations: {note: home}}
spec: {pod: {containers: [{name: web, image: "web:1", resources: {requests: {memory: 64Mi}}}, {name: log, image: "log:1"}]}}`

// image returns a check that a container in a ShadowPod has the image want.
func image(container, want string) func(*unstructured.Unstructured) error {
	return func(shadow *unstructured.Unstructured) error {
		containers, _, err := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers")
		for _, item := range containers {
			if fields, _ := item.(map[string]any); fields["name"] == container && fields["image"] != want {
				err = fmt.Errorf("container %s has image %v, want %s", container, fields["image"], want)
			}
		}
		return err
	}
}

// TestAdmissionOfShadowPodsStands checks that changes by the provider's admission to a new ShadowPod are kept when
// the local pod changes, even after a restart. Admission replaces the image of one container, while the local image
// of another container changes, and it replaces an annotation and adds a label.
func TestAdmissionOfShadowPodsStands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	decided := []func(*unstructured.Unstructured) error{
		image("web", "mirror/web:1"), reflectiontest.Field("metadata.labels/tier", "cloud"), reflectiontest.Field("metadata.labels/added", "by-policy"),
		reflectiontest.Field("metadata.annotations/note", "cloud"), reflectiontest.Field("spec.pod.activeDeadlineSeconds", "900"),
	}
	l.admit("offloading.liqo.io", "shadowpods", `[JSONPatch{op: "replace", path: "/metadata/labels/tier", value: "cloud"}, JSONPatch{op: "add", path: "/metadata/labels/added", value: "by-policy"},
    JSONPatch{op: "replace", path: "/metadata/annotations/note", value: "cloud"}, JSONPatch{op: "replace", path: "/spec/pod/containers/0/image", value: "mirror/web:1"},
    JSONPatch{op: "add", path: "/spec/pod/activeDeadlineSeconds", value: 900}]`, admittedPod, decided[0])
	with := func(more ...func(*unstructured.Unstructured) error) []func(*unstructured.Unstructured) error {
		return append(more, decided...)
	}
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {tier: home}, annotations: {note: home}}
spec: {nodeName: %s, automountServiceAccountToken: false, activeDeadlineSeconds: 1000, containers: [{name: web, image: "web:1"}, {name: log, image: "log:1"}], tolerations: [{operator: Exists}]}`, l.Node))
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", decided...)
	l.Settled()
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {annotations: {other: changed}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(reflectiontest.Field("metadata.annotations/other", "changed"))...)
	l.Settled()

	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:1"}, {name: log, image: "log:2"}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(image("log", "log:2"))...)
	l.Settled()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(image("log", "log:2"))...)

	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {tier: new}}, spec: {containers: [{name: web, image: "web:2"}, {name: log, image: "log:2"}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", image("web", "web:2"), reflectiontest.Field("metadata.labels/tier", "new"), decided[2], decided[3], decided[4])
	l.patchAs("gitops", "ShadowPod", "web", `{metadata: {labels: {foreign: label}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/foreign", ""), image("web", "web:2"), decided[2])
}

// TestAdmissionAddsToShadowPods checks that additions of the provider's admission to a new ShadowPod are kept when
// the local pod changes: fields that the pod does not have, a limit in addition to a request, and a container.
func TestAdmissionAddsToShadowPods(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const resources = `{"limits":{"memory":"128Mi"},"requests":{"memory":"64Mi"}}`
	added := []func(*unstructured.Unstructured) error{
		is("spec.pod.activeDeadlineSeconds", "900"), is("spec.pod.tolerations", `[{key: spot, operator: Exists}]`), image("web", "mirror/web:1"),
		func(shadow *unstructured.Unstructured) error {
			containers, _, err := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers")
			if err != nil || len(containers) != 3 {
				return fmt.Errorf("the containers are %v, want that of the provider, too", containers)
			}
			got, err := json.Marshal(containers[0].(map[string]any)["resources"])
			if string(got) != resources {
				return fmt.Errorf("the resources are %s (%w), want %s", got, err, resources)
			}
			return nil
		},
	}
	l.admit("offloading.liqo.io", "shadowpods", `[JSONPatch{op: "add", path: "/spec/pod/activeDeadlineSeconds", value: 900}, JSONPatch{op: "replace", path: "/spec/pod/containers/0/image", value: "mirror/web:1"},
    JSONPatch{op: "add", path: "/spec/pod/tolerations", value: [{"key": "spot", "operator": "Exists"}]},
    JSONPatch{op: "add", path: "/spec/pod/containers/0/resources/limits", value: {"memory": "128Mi"}}, JSONPatch{op: "add", path: "/spec/pod/containers/-", value: {"name": "mesh", "image": "mesh:1"}}]`, admittedPod, added[0])
	with := func(more ...func(*unstructured.Unstructured) error) []func(*unstructured.Unstructured) error {
		return append(more, added...)
	}
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: web, image: "web:1", resources: {requests: {memory: 64Mi}}}, {name: log, image: "log:1"}]}`, l.Node))
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", added...)
	l.Settled()
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {annotations: {other: changed}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(reflectiontest.Field("metadata.annotations/other", "changed"))...)
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:1", resources: {requests: {memory: 64Mi}}}, {name: log, image: "log:2"}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(image("log", "log:2"))...)
	l.Settled()
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {activeDeadlineSeconds: 800}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", append(added[1:], is("spec.pod.activeDeadlineSeconds", "800"))...)
	l.patchAs("gitops", "ShadowPod", "web", `{spec: {pod: {tolerations: null}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", added[2], added[3], is("spec.pod.activeDeadlineSeconds", "800"))
}

// TestAdmissionOfListsStands checks that lists of a new ShadowPod stay as admission has changed them when the user of
// this cluster adds a toleration. The new toleration is added to the list with the toleration from admission.
func TestAdmissionOfListsStands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const spot = `{"key":"spot","operator":"Exists"}`
	const disk = `{"effect":"NoExecute","key":"node.kubernetes.io/disk-pressure","operator":"Exists"}`
	decided := []func(*unstructured.Unstructured) error{
		is("spec.pod.hostAliases", `[{ip: 10.1.1.1, hostnames: [home]}, {ip: 10.9.9.9, hostnames: [mirror]}]`),
		is("spec.pod.topologySpreadConstraints", `[{maxSkew: 1, topologyKey: cloud-zone, whenUnsatisfiable: ScheduleAnyway}]`),
	}
	tolerates := func(want ...string) func(*unstructured.Unstructured) error {
		return func(shadow *unstructured.Unstructured) error {
			text, err := json.Marshal(shadow.Object["spec"])
			for _, toleration := range want {
				if err == nil && strings.Count(string(text), toleration) != 1 {
					err = fmt.Errorf("the spec is %s, want the toleration %s once", text, toleration)
				}
			}
			return err
		}
	}
	l.admit("offloading.liqo.io", "shadowpods", `[
    JSONPatch{op: "add", path: "/spec/pod/hostAliases/-", value: {"ip": dyn("10.9.9.9"), "hostnames": dyn(["mirror"])}},
    JSONPatch{op: "replace", path: "/spec/pod/topologySpreadConstraints",
      value: [{"maxSkew": dyn(1), "topologyKey": dyn("cloud-zone"), "whenUnsatisfiable": dyn("ScheduleAnyway")}]},
    JSONPatch{op: "add", path: "/spec/pod/tolerations/-", value: {"key": "spot", "operator": "Exists"}}]`, `
apiVersion: offloading.liqo.io/v1beta1
kind: ShadowPod
metadata: {name: web}
spec:
  pod:
    containers: [{name: web, image: "web:1"}]
    tolerations: [{key: probe}]
    hostAliases: [{ip: 10.1.1.1, hostnames: [home]}]
    topologySpreadConstraints: [{maxSkew: 2}]`, decided[0])
	with := func(more ...func(*unstructured.Unstructured) error) []func(*unstructured.Unstructured) error {
		return append(more, decided...)
	}
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  hostAliases: [{ip: 10.1.1.1, hostnames: [home]}]
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]`, l.Node))
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(tolerates(spot))...)
	l.Settled()
	before, _, err := unstructured.NestedSlice(l.Local.Get(t, "Pod", l.Namespace, "web").Object, "spec", "tolerations")
	require.NoError(t, err)
	tolerations, err := json.Marshal(append(before, json.RawMessage(disk)))
	require.NoError(t, err)
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", fmt.Sprintf(`{spec: {tolerations: %s}}`, tolerations))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(tolerates(spot, disk))...)
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {new: "1"}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", with(tolerates(spot, disk), reflectiontest.Field("metadata.labels/new", "1"))...)
}

// TestAdmissionOfShadowEndpointSlicesStands checks that changes by admission are kept for ShadowEndpointSlices. These
// are a special case because their content is not cached.
func TestAdmissionOfShadowEndpointSlicesStands(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	zone := func(want string) func(*unstructured.Unstructured) error {
		return func(shadow *unstructured.Unstructured) error {
			endpoints, _, err := unstructured.NestedSlice(shadow.Object, "spec", "template", "endpoints")
			if got := endpoints[0].(map[string]any)["zone"]; err == nil && fmt.Sprint(got) != want {
				err = fmt.Errorf("zone %v, want %s", got, want)
			}
			return err
		}
	}
	const probe = `{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: web-1, labels: {tier: home}}, spec: {template: {addressType: IPv4, endpoints: [{addresses: [10.1.2.3]}]}}}`
	l.admit("offloading.liqo.io", "shadowendpointslices", `[JSONPatch{op: "replace", path: "/spec/template/endpoints/0/zone", value: "cloud-1"}, JSONPatch{op: "add", path: "/metadata/labels/tier", value: "cloud"}]`,
		strings.Replace(probe, "addresses:", "zone: home, addresses:", 1), zone("cloud-1"))
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, strings.Replace(slice("web-1", "web", "10.1.2.3"), "addresses:", "zone: home, addresses:", 1))
	l.Start()
	decided := []func(*unstructured.Unstructured) error{zone("cloud-1"), reflectiontest.Field("metadata.labels/tier", "cloud")}
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web-1", decided...)
	l.Settled()
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "web-1", `{ports: [{name: http, port: 81, protocol: TCP}]}`)
	port := reflectiontest.Field("spec.template.ports", "[map[name:http port:81 protocol:TCP]]")
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web-1", append(decided, port)...)
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.patchAs("gitops", "ShadowEndpointSlice", "web-1", `{metadata: {labels: {foreign: label}}}`)
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web-1", append(decided, port, reflectiontest.Field("metadata.labels/foreign", ""))...)
}

// TestAdmissionOfTokensStands checks that a label that admission has added to a Secret with tokens is kept after a
// restart and after a renewal of the tokens.
func TestAdmissionOfTokensStands(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, withTokens(t), func(o *reflection.Options) { o.Clock = clock })
	added := reflectiontest.Field("metadata.labels/team", "cloud")
	name := "web" + wire.TokenSecretSuffix
	l.admit("", "secrets", `[JSONPatch{op: "add", path: "/metadata/labels/team", value: "cloud"}]`,
		fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s, labels: {any: label}}}`, name), added)
	l.Start()
	l.userPod("web", vaultToken)
	secret := l.Present(l.Remote, "Secret", l.RemoteNS, name, added)
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Present(l.Remote, "Secret", l.RemoteNS, name, added)
	first := tokenOf(t, secret, "keys")
	clock.Step(17 * time.Minute)
	l.Present(l.Remote, "Secret", l.RemoteNS, name, added, func(secret *unstructured.Unstructured) error {
		if tokenOf(t, secret, "keys") == first {
			return errors.New("the token is not renewed")
		}
		return nil
	})
}

// TestDroppedFieldsCostNoReads checks that a provider that always drops a field causes no reads: the response to the
// write shows the owner of each value, and the version of the provider is known.
func TestDroppedFieldsCostNoReads(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.admitOn("CREATE, UPDATE", "", "services", `[JSONPatch{op: "remove", path: "/metadata/annotations/stripped"}]`, admittedService, reflectiontest.Field("metadata.annotations/stripped", ""))
	l.Local.Create(t, l.Namespace, admittedService)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/note", "home"))
	for i := range 3 {
		note := fmt.Sprint("change-", i)
		l.Local.PatchYAML(t, "Service", l.Namespace, "web", fmt.Sprintf(`{metadata: {annotations: {note: %s, stripped: %s}}}`, note, note))
		l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/note", note), reflectiontest.Field("metadata.annotations/stripped", ""))
		l.Settled()
	}
	l.Event(l.Namespace, "Service", "web", "FieldsDropped", "(Kubernetes v1.")
	reads, versions, writes := 0, 0, 0
	for _, request := range l.Remote.Requests(t) {
		switch {
		case request.Verb == "get" && request.ObjectRef.Resource == "services":
			reads++
		case strings.HasPrefix(request.RequestURI, "/version"):
			versions++
		case request.Verb == "patch" && request.ObjectRef.Resource == "services":
			writes++
		}
	}
	if reads > 0 || versions != 1 || writes < 4 {
		t.Errorf("%d writes cost %d reads of the Service, and %d of the version; want no read, and one", writes, reads, versions)
	}
}
