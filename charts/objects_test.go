// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// wish is an object that consumers may not write by default.
type wish struct {
	what   string
	object string
	says   string // text that the rejection must contain
	// limit is the name of the limit that allows the object if it has the value in allowances. It is empty if no
	// limit can allow the object.
	limit string
	// instead is a similar object that is allowed by default.
	instead string
}

func claimOf(spec string) string {
	return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: thing}, spec: {accessModes: [ReadWriteOnce], " + spec + "}}"
}

func serviceOf(spec string) string {
	return "{apiVersion: v1, kind: Service, metadata: {name: thing}, spec: {" + spec + "}}"
}

func ingressOf(metadata, spec string) string {
	return "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: thing" + metadata + "}, spec: {" + spec + "}}"
}

func secretOf(metadata, rest string) string {
	return "{apiVersion: v1, kind: Secret, metadata: {name: thing" + metadata + "}" + rest + "}"
}

// shadowPodOf returns a ShadowPod with one volume.
func shadowPodOf(volume string) string {
	return "{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: thing, labels: {offloading.liqo.io/origin: rome}}, spec: {pod: {containers: [{name: a, image: a}], volumes: [{name: v, " + volume + "}]}}}"
}

const (
	small    = "resources: {requests: {storage: 1Gi}}"
	backend  = "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}"
	rule     = "rules: [{host: shop.rome.example.com, " + backend + "}]"
	owner    = ", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: other, uid: 0d3c4a3e-0000-4000-8000-000000000000}]"
	snapshot = "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: yesterday}"
)

// wishes contains objects of the kinds that consumers write. "fast" is a class that the tests allow, and "standard" is
// the default class of the cluster.
var wishes = []wish{
	{"a claim of any class", claimOf("storageClassName: fast, " + small), "spec.storageClassName", "storage-classes", ""},
	{"a claim of the default class", claimOf(small), "spec.storageClassName", "storage-classes", ""},
	{"a claim without a class", claimOf(`storageClassName: "", ` + small), "spec.storageClassName", "", ""},
	{"a claim of a class in the deprecated annotation", strings.Replace(claimOf(small), "name: thing", "name: thing, annotations: {volume.beta.kubernetes.io/storage-class: slow}", 1), "spec.storageClassName", "", ""},
	{"a claim for a volume", claimOf("storageClassName: fast, volumeName: backup, " + small), "spec.volumeName", "", ""},
	{"a claim that selects volumes", claimOf("storageClassName: fast, selector: {matchLabels: {a: b}}, " + small), "spec.selector", "", ""},
	{"a claim of a snapshot", claimOf("storageClassName: fast, dataSource: " + snapshot + ", " + small), "spec.dataSource", "claim-data-sources", ""},
	{"a claim of a snapshot by reference", claimOf("storageClassName: fast, dataSourceRef: " + snapshot + ", " + small), "spec.dataSource", "claim-data-sources", ""},
	{"a claim with attributes", claimOf("storageClassName: fast, volumeAttributesClassName: gold, " + small), "spec.volumeAttributesClassName", "volume-attributes-classes", ""},
	{"a huge claim", claimOf("storageClassName: fast, resources: {requests: {storage: 2Ti}}"), "spec.resources.requests[storage]", "max-claim-size", ""},

	{"an external name", serviceOf("type: ExternalName, externalName: kubernetes.default.svc.cluster.local"), "spec.type ExternalName", "external-names", serviceOf("ports: [{port: 80}]")},
	{"a chosen node port", serviceOf("type: NodePort, ports: [{port: 80, nodePort: 30443}]"), "spec.ports[].nodePort", "chosen-node-ports", serviceOf("type: NodePort, ports: [{port: 80}]")},
	{"a chosen node port of a load balancer", serviceOf("type: LoadBalancer, ports: [{port: 80, name: a}, {port: 81, name: b, nodePort: 30443}]"), "spec.ports[].nodePort", "chosen-node-ports", serviceOf("type: LoadBalancer, ports: [{port: 80}]")},
	{"a chosen port of health checks", serviceOf("type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30444, ports: [{port: 80}]"), "spec.healthCheckNodePort", "chosen-node-ports",
		serviceOf("type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]")},
	{"a chosen cluster IP", serviceOf("clusterIP: CLUSTER_IP, ports: [{port: 80}]"), "spec.clusterIP", "chosen-addresses", serviceOf(`clusterIP: "None", ports: [{port: 80}]`)},
	{"a chosen load balancer IP", serviceOf("type: LoadBalancer, loadBalancerIP: 192.0.2.1, ports: [{port: 80}]"), "spec.loadBalancerIP", "chosen-addresses", ""},
	{"a class of load balancers", serviceOf("type: LoadBalancer, loadBalancerClass: example.com/internal, ports: [{port: 80}]"), "spec.loadBalancerClass", "load-balancer-classes", serviceOf("type: LoadBalancer, ports: [{port: 80}]")},

	{"a host", ingressOf("", rule), "spec.rules[].host", "ingress-hosts", ""},
	{"a wildcard host", ingressOf("", strings.Replace(rule, "shop.rome.example.com", `"*.rome.example.com"`, 1)), "spec.rules[].host", "ingress-hosts", ""},
	{"no host", ingressOf("", "rules: [{"+backend+"}]"), "spec.rules[].host", "", ""},
	{"a default backend", ingressOf("", "defaultBackend: {service: {name: web, port: {number: 80}}}"), "spec.defaultBackend", "", ""},
	{"a certificate for a host", ingressOf("", strings.Replace(rule, "rules:", "tls: [{hosts: [console.milan.example.com]}], rules:", 1)), "spec.tls[].hosts", "", ""},
	{"a class of Ingresses", ingressOf("", "ingressClassName: internal, "+rule), "spec.ingressClassName", "ingress-classes", ""},
	{"a class of Ingresses in the annotation", ingressOf(", annotations: {kubernetes.io/ingress.class: internal}", rule), "kubernetes.io/ingress.class", "ingress-classes", ""},
	{"a backend that is no Service", ingressOf("", "rules: [{host: shop.rome.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {resource: {kind: Bucket, name: secrets}}}]}}]"), "Backends of kind resource", "", ""},

	{"a token of a ServiceAccount", secretOf(", annotations: {kubernetes.io/service-account.name: default}", ", type: kubernetes.io/service-account-token"), "kubernetes.io/service-account-token", "", secretOf(", annotations: {kubernetes.io/service-account.name: default}", ", type: Opaque")},
	{"a bootstrap token", secretOf("", ", type: bootstrap.kubernetes.io/token"), "bootstrap.kubernetes.io/token", "", secretOf("", ", type: kubernetes.io/tls, stringData: {tls.crt: \"\", tls.key: \"\"}")},

	{"a finalizer", secretOf(", finalizers: [rome.example.com/hold]", ""), "metadata.finalizers", "", secretOf("", "")},
	{"an owner", secretOf(owner, ""), "metadata.ownerReferences", "", ""},
	{"a finalizer of a ShadowPod", strings.Replace(shadowPodOf("emptyDir: {}"), "name: thing", "name: thing, finalizers: [rome.example.com/hold]", 1), "metadata.finalizers", "", ""},
	{"an owner of endpoints", "{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: thing" + owner + "}}", "metadata.ownerReferences", "", ""},
}

// allowances are the values of the limits with which the wishes are allowed.
var allowances = map[string]string{
	"storage-classes": "fast,standard", "max-claim-size": "2Ti", "volume-attributes-classes": "gold", "claim-data-sources": "true",
	"external-names": "true", "chosen-node-ports": "true", "chosen-addresses": "true", "load-balancer-classes": "example.com/*",
	"ingress-classes": "internal", "ingress-hosts": "*.rome.example.com",
}

func (w *wish) parse(t *testing.T, text, clusterIP string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "CLUSTER_IP", clusterIP)), &object.Object), w.what)
	object.SetNamespace(remoteNamespace)
	return object
}

// annotate sets limits for a namespace by annotating the Namespace.
func (h *held) annotate(namespace string, limits map[string]string) {
	h.Helper()
	annotations := map[string]string{}
	for name, value := range limits {
		annotations["tenants.refract.io/"+name] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	h.must(err)
	h.must(h.admin.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, client.RawPatch(types.MergePatchType, patch)))
}

// write creates an object, or applies it as a virtual kubelet does.
func write(t *testing.T, c client.Client, object *unstructured.Unstructured, apply bool) error {
	object = object.DeepCopy()
	if !apply {
		return c.Create(t.Context(), object, client.DryRunAll)
	}
	return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.DryRunAll, client.ForceOwnership, client.FieldOwner("refract"))
}

func TestObjectsOfConsumers(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	for name, isDefault := range map[string]string{"standard": "true", "fast": "false"} {
		h.must(h.admin.Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": isDefault}}, Provisioner: "example.com/volumes",
		}))
	}
	probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	h.must(h.admin.Create(t.Context(), probe))
	freeIP := probe.Spec.ClusterIP
	h.must(h.admin.Delete(t.Context(), probe))

	h.await(rome, &wishes[0], wishes[0].says) // The attempts below are not repeated, so the policies must be enforced.

	// These allowances are needed so that objects are not rejected before the field under test is checked.
	first := map[string]string{"allowed-annotations": "volume.beta.kubernetes.io/*", "storage-classes": allowances["storage-classes"], "ingress-hosts": allowances["ingress-hosts"]}
	for i := range wishes {
		if _, is := first[wishes[i].limit]; is {
			h.try(rome, &wishes[i], wishes[i].object, freeIP, wishes[i].says)
		}
	}
	h.annotate(remoteNamespace, first)
	h.await(rome, &wishes[0], "")
	for i := range wishes {
		says := wishes[i].says
		if _, is := first[wishes[i].limit]; is {
			says = ""
		}
		h.try(rome, &wishes[i], wishes[i].object, freeIP, says)
		h.try(rome, &wishes[i], wishes[i].instead, freeIP, "")
	}
	h.annotate(remoteNamespace, allowances) // in addition to the limits above
	h.await(rome, &wish{object: serviceOf("type: ExternalName, externalName: example.com")}, "")
	for i := range wishes {
		says := wishes[i].says
		if wishes[i].limit != "" {
			says = ""
		}
		h.try(rome, &wishes[i], wishes[i].object, freeIP, says)
	}
}

// await waits until an attempt to create an object is rejected with the given text, or allowed if the text is empty.
func (h *held) await(c client.Client, w *wish, says string) {
	h.Helper()
	h.attempt(w.what, says, func() error { return write(h.T, c, w.parse(h.T, w.object, ""), false) })
}

// try writes an object of the consumer, both by create and by apply.
func (h *held) try(c client.Client, w *wish, text, clusterIP, says string) {
	h.Helper()
	if text == "" {
		return
	}
	object := w.parse(h.T, text, clusterIP)
	for _, apply := range []bool{false, true} {
		if apply && strings.HasPrefix(object.GetKind(), "Shadow") {
			continue // these kinds are written by create and update, not by apply
		}
		if err := write(h.T, c, object, apply); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			h.Errorf("%s (apply %t): %v, want a refusal with %q", w.what, apply, err, says)
		}
	}
}

// change is a patch of an existing object. It must be rejected with the text in says, or allowed if this text is empty.
type change struct {
	what, patch, says string
	kind              types.PatchType
}

// TestChangesOfObjectsOfConsumers checks that forbidden content that already exists may stay while other fields
// change, and that values that the cluster has assigned do not count as the consumer's choice.
func TestChangesOfObjectsOfConsumers(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	h.await(rome, &wishes[0], wishes[0].says)
	const merge = types.MergePatchType
	expands := true
	h.must(h.admin.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "example.com/volumes", AllowVolumeExpansion: &expands}))
	label := change{"a label", `{metadata: {labels: {a: b}}}`, "", merge}
	volume := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("{apiVersion: v1, kind: PersistentVolume, metadata: {name: theirs, labels: {a: b}}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], capacity: {storage: 900Gi}, csi: {driver: a, volumeHandle: a}}}"), &volume.Object))
	h.must(h.admin.Create(t.Context(), volume))
	for _, c := range []struct {
		object  string
		changes []change
	}{
		{claimOf("storageClassName: slow, volumeName: theirs, selector: {matchLabels: {a: b}}, dataSource: " + snapshot + ", resources: {requests: {storage: 900Gi}}"), []change{label,
			{"growing", `{spec: {resources: {requests: {storage: 1Ti}}}}`, "", merge},
			{"growing beyond the limit", `{spec: {resources: {requests: {storage: 5Ti}}}}`, "spec.resources.requests[storage]", merge}}},
		{strings.Replace(claimOf("storageClassName: slow, "+small), "thing", "unbound", 1), []change{label,
			{"naming a volume", `{spec: {volumeName: backup}}`, "spec.volumeName", merge}}},
		{serviceOf("type: LoadBalancer, loadBalancerIP: 192.0.2.1, loadBalancerClass: example.com/internal, externalTrafficPolicy: Local, healthCheckNodePort: 30444, ports: [{port: 80, nodePort: 30443}]"), []change{label,
			{"another port", `{spec: {ports: [{port: 81, nodePort: 30443}]}}`, "", merge},
			{"another node port", `{spec: {ports: [{port: 80, nodePort: 30445}]}}`, "spec.ports[].nodePort", merge},
			{"another load balancer IP", `{spec: {loadBalancerIP: 192.0.2.2}}`, "spec.loadBalancerIP", merge}}},
		{strings.Replace(serviceOf("type: NodePort, ports: [{port: 80}]"), "thing", "assigned", 1), []change{label,
			{"choosing a node port", `{spec: {ports: [{port: 80, nodePort: 30446}]}}`, "spec.ports[].nodePort", merge},
			{"choosing a node port without managers", `{metadata: {managedFields: [{}]}, spec: {ports: [{port: 80, nodePort: 30446}]}}`, "managedFields", merge},
			{"removing the managers", `{metadata: {managedFields: [{}]}}`, "managedFields", merge},
			{"choosing a node port by JSON patch", `[{op: replace, path: /spec/ports/0/nodePort, value: 30446}]`, "spec.ports[].nodePort", types.JSONPatchType},
			{"a second port", `{spec: {ports: [{port: 80, name: a}, {port: 81, name: b}]}}`, "", merge},
			{"an external name", `{spec: {type: ExternalName, externalName: example.com}}`, "spec.type", merge}}},
		{strings.Replace(serviceOf("type: ExternalName, externalName: example.com"), "thing", "external", 1), []change{label,
			{"another name", `{spec: {externalName: kubernetes.default.svc}}`, "spec.type", merge},
			{"a cluster IP instead", `{spec: {type: ClusterIP, externalName: null, ports: [{port: 80}]}}`, "", merge}}},
		{ingressOf(", annotations: {kubernetes.io/ingress.class: internal}", "tls: [{hosts: [shop.rome.example.com]}], "+rule), []change{label,
			{"another host", `{spec: {rules: [{host: console.milan.example.com, ` + backend + `}]}}`, "spec.rules[].host", merge},
			{"a default backend", `{spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`, "spec.defaultBackend", merge},
			{"a class without managers", `{metadata: {managedFields: [{}]}, spec: {ingressClassName: internal}}`, "managedFields", merge},
			{"no class", `{metadata: {annotations: {kubernetes.io/ingress.class: null}}}`, "", merge},
			{"another class", `{spec: {ingressClassName: internal}, metadata: {annotations: {kubernetes.io/ingress.class: null}}}`, "spec.ingressClassName", merge}}},
		{secretOf(", finalizers: [milan.example.com/hold]"+owner, ""), []change{label,
			{"removing a finalizer", `{metadata: {finalizers: null}}`, "metadata.finalizers", merge},
			{"a second finalizer", `{metadata: {finalizers: [milan.example.com/hold, rome.example.com/hold]}}`, "metadata.finalizers", merge},
			{"removing an owner", `{metadata: {ownerReferences: null}}`, "metadata.ownerReferences", merge}}},
	} {
		object := (&wish{}).parse(t, c.object, "")
		h.must(h.admin.Create(t.Context(), object))
		if _, is, _ := unstructured.NestedString(object.Object, "spec", "volumeName"); is {
			h.attempt("binding the claim", "", func() error {
				claim := &corev1.PersistentVolumeClaim{}
				if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(object), claim); err != nil || claim.Status.Phase == corev1.ClaimBound {
					return err
				}
				return fmt.Errorf("its phase is %s", claim.Status.Phase)
			})
		}
		for _, change := range c.changes {
			patch, err := yaml.YAMLToJSON([]byte(change.patch))
			h.must(err)
			err = rome.Patch(t.Context(), object.DeepCopy(), client.RawPatch(change.kind, patch), client.DryRunAll)
			if change.says == "" && err != nil || change.says != "" && (err == nil || !strings.Contains(err.Error(), change.says)) {
				t.Errorf("%s/%s, %s: %v, want a refusal with %q", object.GetKind(), object.GetName(), change.what, err, change.says)
			}
		}
	}
}

// TestClaimsOfEphemeralVolumes checks that a controller of the provider that creates claims for ephemeral volumes is
// restricted like the consumer, and that administrators are not restricted.
func TestClaimsOfEphemeralVolumes(t *testing.T) {
	h := hold(t)
	w := &wishes[0]
	h.await(h.as("rome-kubelet", "rome"), w, w.says)
	for user, says := range map[string]string{
		"system:serviceaccount:kube-system:ephemeral-volume-controller": w.says,
		"system:kube-controller-manager":                                w.says,
		"kubernetes-admin":                                              "",
	} {
		h.try(h.as(user, "system:masters"), w, w.object, "", says)
	}
}

// TestClaimsWithoutAClass checks that if there is no default class, a claim without a class name has no class, even
// if a controller creates it for a pod of the consumer.
func TestClaimsWithoutAClass(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	h.await(rome, &wishes[0], wishes[0].says) // The attempts below are not repeated, so the policies must be enforced.
	h.annotate(remoteNamespace, map[string]string{"storage-classes": "*"})
	h.await(rome, &wishes[0], "")
	none := &wish{"a claim without a class", claimOf(small), "spec.storageClassName", "", ""}
	for user, groups := range map[string][]string{
		"rome-kubelet": {"rome"}, "system:serviceaccount:kube-system:ephemeral-volume-controller": {"system:masters"}, "system:kube-controller-manager": {"system:masters"},
	} {
		h.try(h.as(user, groups...), none, none.object, "", none.says)
	}
	h.try(h.as("kubernetes-admin", "system:masters"), none, none.object, "", "")
}

// TestMetadataInTenantNamespaces checks NamespaceMaps, which consumers also write, and on which Refract's own
// controllers set a finalizer.
func TestMetadataInTenantNamespaces(t *testing.T) {
	h := hold(t)
	h.must(h.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-turin", Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "turin"},
	}}))
	mapOf := func(metadata string) *unstructured.Unstructured {
		object := (&wish{}).parse(t, "{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceMap, metadata: {name: home, labels: {liqo.io/replicated: \"true\", liqo.io/originID: turin}"+metadata+"}}", "")
		object.SetNamespace("liqo-tenant-turin")
		return object
	}
	const held = ", finalizers: [namespacemap.liqo.io/finalizer]"
	for user, groups := range map[string][]string{"turin": nil, "turin-kubelet": {"turin"}, "system:serviceaccount:liqo-tenant-turin:refract-consumer": nil} {
		// The consumer has all permissions here, because this test does not concern RBAC.
		h.must(client.IgnoreAlreadyExists(h.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everything"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "turin"}, {APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "turin"}, rbac.ServiceAccount("liqo-tenant-turin", "refract-consumer"),
			}})))
		turin := h.as(user, groups...)
		h.attempt("a finalizer", "metadata.finalizers", func() error { return write(t, turin, mapOf(held), true) })
		h.attempt("an owner", "metadata.ownerReferences", func() error { return write(t, turin, mapOf(owner), true) })
		h.attempt("neither", "", func() error { return write(t, turin, mapOf(""), true) })
	}
	h.must(h.admin.Create(t.Context(), mapOf(held)))
	h.attempt("a map with the finalizer of the provider", "", func() error { return write(t, h.as("turin"), mapOf(", annotations: {a: b}"), true) })
}
