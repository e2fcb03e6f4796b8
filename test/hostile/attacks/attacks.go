// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package attacks lists the objects that a hostile consumer tries to write on its provider. Tests write them to real
// control planes.
package attacks

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
)

// Attack is an object that the provider must refuse.
type Attack struct {
	Name     string
	Resource schema.GroupVersionResource
	// Tenant is true if the object belongs in the tenant namespace of the consumer, and false if it belongs in a remote
	// namespace.
	Tenant bool
	// Refusal is a text that the provider's response must contain.
	Refusal  string
	manifest string
}

// Object returns the object that the consumer with the given cluster ID writes in the attack. namespace is the object's
// namespace on the provider.
func (a *Attack) Object(consumer, namespace string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(a.manifest, "CONSUMER", consumer)), &object.Object); err != nil {
		return nil, fmt.Errorf("parsing the attack %q, %w", a.Name, err)
	}
	object.SetNamespace(namespace)
	return object, nil
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func liqo(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + ".liqo.io", Version: "v1beta1", Resource: resource}
}

func pod(name, spec, refusal string) Attack {
	return Attack{Name: name, Resource: liqo("offloading", "shadowpods"), Refusal: refusal,
		manifest: "{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: attack, labels: {offloading.liqo.io/origin: CONSUMER}}, spec: {pod: {containers: [{name: a, image: a}], " + spec + "}}}"}
}

func service(name, spec, refusal string) Attack {
	return Attack{Name: name, Resource: core("services"), Refusal: refusal,
		manifest: "{apiVersion: v1, kind: Service, metadata: {name: attack}, spec: {ports: [{port: 80}], " + spec + "}}"}
}

func claim(name, spec, refusal string) Attack {
	return Attack{Name: name, Resource: core("persistentvolumeclaims"), Refusal: refusal,
		manifest: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: attack}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, " + spec + "}}"}
}

func configMap(name, metadata, refusal string) Attack {
	return Attack{Name: name, Resource: core("configmaps"), Refusal: refusal, manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: attack, " + metadata + "}}"}
}

func network(kind, resource, name, metadata, spec, refusal string) Attack {
	return Attack{Name: name, Resource: liqo("networking", resource), Refusal: refusal,
		manifest: "{apiVersion: networking.liqo.io/v1beta1, kind: " + kind +
			", metadata: {name: attack, " + metadata + "}, spec: {" + spec + "}}"}
}

func inTenant(a Attack) Attack {
	a.Tenant = true
	return a
}

// attackName is the name of most objects. If an object has another name, its name is part of the attack.
const attackName = "attack"

// Change returns a merge patch that changes an existing permitted object to the object of the attack. ok is false if
// the attack depends on the object's name, or belongs in the tenant namespace.
func (a *Attack) Change(consumer string) (patch []byte, ok bool, err error) {
	object, err := a.Object(consumer, "")
	if err != nil || a.Tenant || object.GetName() != attackName {
		return nil, false, err
	}
	for _, field := range [][]string{{"metadata", "name"}, {"metadata", "namespace"}, {"apiVersion"}, {"kind"}} {
		unstructured.RemoveNestedField(object.Object, field...)
	}
	patch, err = json.Marshal(object.Object)
	if err != nil {
		return nil, false, fmt.Errorf("encoding the attack %q, %w", a.Name, err)
	}
	return patch, true, nil
}

// Removal is an object that a consumer must not delete, although the object is in one of the consumer's namespaces.
type Removal struct {
	Resource schema.GroupVersionResource
	Name     string
	Refusal  string // text that the provider's response must contain
}

// RemovalsByConsumer returns the objects that the provider creates in a consumer's namespaces and that the consumer
// must not delete.
func RemovalsByConsumer() (removals []Removal) {
	for _, name := range wire.EgressPolicyNames()[:2] {
		removals = append(removals, Removal{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, name, "belongs to this cluster"})
	}
	return append(removals, Removal{core("limitranges"), wire.TenantLimitRange, "forbidden"}, Removal{core("resourcequotas"), wire.ObjectCountsQuota, "forbidden"},
		Removal{core("serviceaccounts"), "default", "forbidden"})
}

// OfConsumer returns all attacks by a consumer.
func OfConsumer() []Attack {
	namespaceMap := liqo("offloading", "namespacemaps")
	return []Attack{
		pod("a pod on a chosen node", "nodeName: control-plane", "spec.pod.nodeName"),
		pod("a pod on the control plane", `nodeSelector: {node-role.kubernetes.io/control-plane: ""}`, "spec.pod.nodeSelector"),
		pod("a pod that tolerates everything", "tolerations: [{operator: Exists}]", "spec.pod.tolerations"),
		pod("a pod of another scheduler", "schedulerName: mine", "spec.pod.schedulerName"),
		pod("a pod of the system", "priorityClassName: system-node-critical", "spec.pod.priorityClassName"),
		pod("a pod that never ends", "terminationGracePeriodSeconds: 31536000", "terminationGracePeriodSeconds"),
		pod("a pod with network storage", "volumes: [{name: v, nfs: {server: 10.0.0.1, path: /}}]", "spec.pod.volumes"),
		pod("a pod with network storage by a driver", "volumes: [{name: v, csi: {driver: nfs.csi.k8s.io, volumeAttributes: {server: 10.0.0.1, share: /}}}]", "spec.pod.volumes"),
		pod("a pod with the volume of others", "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}}}}]", "storageClassName"),
		{Name: "a pod of another consumer", Resource: liqo("offloading", "shadowpods"), Refusal: "offloading.liqo.io/origin",
			manifest: "{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: attack, labels: {offloading.liqo.io/origin: somebody}}, spec: {pod: {containers: [{name: a, image: a}]}}}"},
		service("a Service that intercepts traffic", "externalIPs: [192.0.2.1]", "spec.externalIPs"),
		service("a Service for a name of the cluster", "type: ExternalName, externalName: kubernetes.default.svc.cluster.local", "ExternalName"),
		service("a Service that takes a node port", "type: NodePort, ports: [{port: 80, nodePort: 30443}]", "nodePort"),
		claim("a claim of no class", "storageClassName: ''", "spec.storageClassName"),
		claim("a claim for a volume", "storageClassName: local, volumeName: theirs", "refract-consumer-claims"),
		configMap("a ConfigMap for a dashboard", "labels: {grafana_dashboard: '1'}", "metadata.labels[grafana_dashboard]"),
		configMap("a ConfigMap that nobody can remove", "finalizers: [example.com/mine]", "metadata.finalizers"),
		configMap("a ConfigMap that is removed with another", "ownerReferences: [{apiVersion: v1, kind: Pod, name: theirs, uid: 1d0f4bd6-0000-4000-8000-000000000000}]", "metadata.ownerReferences"),
		{Name: "a token of the cluster", Resource: core("secrets"), Refusal: "service-account-token",
			manifest: "{apiVersion: v1, kind: Secret, metadata: {name: attack, annotations: {kubernetes.io/service-account.name: default}}, type: kubernetes.io/service-account-token}"},
		{Name: "an egress policy of the provider", Resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, Refusal: "belongs to this cluster",
			manifest: "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: refract-egress}, spec: {podSelector: {}, egress: [{}]}}"},
		{Name: "a NetworkPolicy of many rules", Resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, Refusal: "spec has more than",
			manifest: "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: attack}, spec: {podSelector: {}, ingress: [" + strings.Repeat("{}, ", 1001) + "]}}"},
		{Name: "an Ingress for a host of the provider", Resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, Refusal: "spec.rules[].host",
			manifest: "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: attack}, spec: {rules: [{host: console.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}"},
		{Name: "a PodDisruptionBudget that nobody can remove", Resource: schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, Refusal: "metadata.finalizers",
			manifest: "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: attack, finalizers: [example.com/mine]}, spec: {maxUnavailable: 0}}"},
		{Name: "endpoints that a dashboard loads", Resource: liqo("offloading", "shadowendpointslices"), Refusal: "metadata.labels[grafana_dashboard]",
			manifest: "{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: attack, labels: {offloading.liqo.io/origin: CONSUMER, grafana_dashboard: '1'}}, spec: {template: {addressType: IPv4, endpoints: [{addresses: [10.70.0.1]}]}}}"},
		inTenant(Attack{Name: "a ResourceSlice that this cluster would send", Resource: liqo("authentication", "resourceslices"), Refusal: "forbidden",
			manifest: "{apiVersion: authentication.liqo.io/v1beta1, kind: ResourceSlice, metadata: {name: attack, labels: {liqo.io/replication: 'true', liqo.io/remoteID: CONSUMER, liqo.io/remote-cluster-id: CONSUMER}}, spec: {}}"}),
		inTenant(Attack{Name: "a Renew that this cluster would send", Resource: liqo("authentication", "renews"), Refusal: "forbidden",
			manifest: "{apiVersion: authentication.liqo.io/v1beta1, kind: Renew, metadata: {name: attack, labels: {liqo.io/replication: 'true', liqo.io/remoteID: CONSUMER}}, spec: {consumerClusterID: CONSUMER, identityType: ControlPlane, publicKey: YQ==, CSR: YQ==}}"}),
		inTenant(Attack{Name: "a map that this cluster would send", Resource: namespaceMap, Refusal: "writes only its own NamespaceMap",
			manifest: "{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceMap, metadata: {name: CONSUMER, labels: {liqo.io/replication: 'true', liqo.io/remoteID: CONSUMER, liqo.io/remote-cluster-id: CONSUMER}}, spec: {desiredMapping: {kube-system: theirs}}}"}),
		inTenant(network("Configuration", "configurations", "a Configuration that a dashboard loads", "labels: {grafana_dashboard: '1'}",
			"remote: {cidr: {pod: [10.70.0.0/16], external: [10.71.0.0/16]}}", "metadata.labels[grafana_dashboard]")),
		inTenant(network("PublicKey", "publickeies", "a PublicKey that nobody can remove", "finalizers: [example.com/mine]",
			"publicKey: YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=", "metadata.finalizers")),
		inTenant(Attack{Name: "the Lease of another process", Resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, Refusal: "writes only the Lease",
			manifest: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: attack}, spec: {holderIdentity: mine, leaseDurationSeconds: 2000000000}}"}),
	}
}
