// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/tenantlimits"
	"github.com/refract-project/refract/test/support/permissions"
)

// Labels and annotations that components of a cluster trust, and harmless ones that people and tools often set.
var (
	deniedLabels = []string{
		"sidecar.istio.io/inject", "istio.io/rev", "linkerd.io/control-plane-ns", "admission.gatekeeper.sh/ignore", "openpolicyagent.org/webhook", "azure.workload.identity/use",
		"aadpodidbinding", "grafana_dashboard", "grafana_datasource", "velero.io/exclude-from-backup", "argocd.argoproj.io/secret-type",
	}
	usualLabels = []string{
		"app", "app.kubernetes.io/name", "app.kubernetes.io/managed-by", "helm.sh/chart", "pod-template-hash", "statefulset.kubernetes.io/pod-name", "service.istio.io/canonical-name",
		"argocd.argoproj.io/instance", "tags.datadoghq.com/service", "topology.kubernetes.io/zone", "security.istio.io/tlsMode",
	}
	deniedAnnotations = []string{
		"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "cni.projectcalico.org/ipAddrs", "io.cilium/lb-ipam-ips", "network.cilium.io/no-track-port", "k8s.ovn.org/routing-namespaces",
		"iam.amazonaws.com/role", "eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "io.katacontainers.config.hypervisor.path", "io.kubernetes.cri-o.Devices", "io.kubernetes.cri.untrusted-workload",
		"cpu-quota.crio.io", "run.oci.hooks.stdout", "dev.gvisor.flag.network", "cdi.k8s.io/gpu", "devices.nri.io/container.web", "target.workload.openshift.io/management", "kubernetes.io/config.mirror",
		"cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt", "sidecar.istio.io/userVolume", "traffic.sidecar.istio.io/excludeOutboundPorts", "proxy.istio.io/config", "linkerd.io/inject",
		"config.linkerd.io/skip-outbound-ports", "nginx.ingress.kubernetes.io/server-snippet", "nginx.ingress.kubernetes.io/configuration-snippet", "nginx.ingress.kubernetes.io/auth-url", "nginx.org/location-snippets",
		"external-dns.alpha.kubernetes.io/hostname", "cert-manager.io/cluster-issuer", "metallb.universe.tf/loadBalancerIPs", "metallb.io/address-pool", "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
		"service.beta.kubernetes.io/azure-load-balancer-internal", "alb.ingress.kubernetes.io/group.name", "cloud.google.com/backend-config", "kubernetes.io/ingress.global-static-ip-name", "ad.datadoghq.com/web.checks",
		"co.elastic.logs/raw", "pre.hook.backup.velero.io/command", "replicator.v1.mittwald.de/replicate-from", "reflector.v1.k8s.emberstack.com/reflects", "volume.kubernetes.io/selected-node",
		"volume.beta.kubernetes.io/storage-class", "pv.kubernetes.io/bind-completed", "vault.hashicorp.com/agent-inject", "autoscaling.keda.sh/paused",
	}
	usualAnnotations = []string{
		"prometheus.io/scrape", "prometheus.io/port", "kubectl.kubernetes.io/last-applied-configuration", "kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container", "checksum/config",
		"meta.helm.sh/release-name", "nginx.ingress.kubernetes.io/rewrite-target", "nginx.ingress.kubernetes.io/proxy-body-size", "nginx.ingress.kubernetes.io/auth-secret", "traefik.ingress.kubernetes.io/router.entrypoints",
		"service.kubernetes.io/topology-mode", "kubernetes.io/ingress.class", "kubernetes.io/egress-bandwidth", "liqo.io/api-server-support", "liqo.io/remote-storage-class", "openshift.io/scc",
		"cert-manager.io/certificate-name", "cert-manager.io/issuer-name", "policies.kyverno.io/last-applied-patches", "argocd.argoproj.io/tracking-id", "endpoints.kubernetes.io/last-change-trigger-time", "example.com/anything",
	}
)

func TestKeysThatAreDenied(t *testing.T) {
	limits := tenantlimits.Limits{}
	for _, key := range deniedLabels {
		assert.Truef(t, limits.DeniesLabel(key), "label %s", key)
	}
	for _, key := range usualLabels {
		assert.Falsef(t, limits.DeniesLabel(key), "label %s", key)
	}
	for _, key := range deniedAnnotations {
		assert.Truef(t, limits.DeniesAnnotation(key), "annotation %s", key)
	}
	for _, key := range usualAnnotations {
		assert.Falsef(t, limits.DeniesAnnotation(key), "annotation %s", key)
	}
}

// kindsOfConsumers returns an object of each kind that a consumer writes in its remote namespaces.
func kindsOfConsumers(namespace string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "web"}
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	shadow := shadow(namespace, nil)
	return []client.Object{
		shadow,
		&offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{wire.OriginLabel: "rome"}},
			Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.70.0.1"}}}}}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}},
		&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{DefaultBackend: &backend}},
		&networkingv1.NetworkPolicy{ObjectMeta: meta}, &policyv1.PodDisruptionBudget{ObjectMeta: meta},
	}
}

func with(object client.Object, labels, annotations map[string]string) client.Object {
	object = object.DeepCopyObject().(client.Object)
	merged := map[string]string{}
	for _, pairs := range []map[string]string{object.GetLabels(), labels} {
		for key, value := range pairs {
			merged[key] = value
		}
	}
	object.SetLabels(merged)
	object.SetAnnotations(annotations)
	return object
}

func pairs(keys []string) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		all[key] = "true"
	}
	return all
}

// TestMetadataOfConsumers checks that trusted labels and annotations are denied on every kind that a consumer writes,
// and harmless ones are not.
func TestMetadataOfConsumers(t *testing.T) {
	h := hold(t)
	h.annotate(remoteNamespace, map[string]string{"storage-classes": "fast", "ingress-hosts": "*", "ingress-classes": "*"})
	for _, consumer := range []client.Client{h.as("rome-kubelet", "rome"), h.as("system:serviceaccount:liqo-tenant-rome:refract-consumer")} {
		for _, object := range kindsOfConsumers(remoteNamespace) {
			h.refused(consumer, with(object, pairs([]string{"grafana_dashboard"}), nil), "metadata.labels[grafana_dashboard] is not allowed")
			h.refused(consumer, with(object, nil, pairs([]string{"k8s.v1.cni.cncf.io/networks"})), "metadata.annotations[k8s.v1.cni.cncf.io/networks] is not allowed")
			h.must(consumer.Create(t.Context(), with(object, pairs(usualLabels), pairs(usualAnnotations)), client.DryRunAll))
		}
	}
	rome := h.as("rome-kubelet", "rome")
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "keys"}}
	for _, key := range deniedLabels {
		h.refused(rome, with(configMap, pairs([]string{key}), nil), "metadata.labels["+key+"]")
	}
	for _, key := range deniedAnnotations {
		h.refused(rome, with(configMap, nil, pairs([]string{key})), "metadata.annotations["+key+"]")
	}
	h.must(h.admin.Create(t.Context(), with(configMap, pairs(deniedLabels), pairs(deniedAnnotations)), client.DryRunAll))

	// Many long keys must not exceed the cost limit of the policies.
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("generated.example.com/%030d", i))
	}
	h.must(rome.Create(t.Context(), with(configMap, pairs(many), pairs(many)), client.DryRunAll))
}

// kindsInTenantNamespaces returns an object of each kind that a consumer writes in its tenant namespace. The last one is a
// ResourceSlice, which only consumers with Liqo's protocol write.
func kindsInTenantNamespaces(h *held) []client.Object {
	const (
		labels      = "labels: " + incomingLabels
		annotations = `annotations: {liqo.io/remote-cluster-id: rome, kubectl.kubernetes.io/last-applied-configuration: "{}"}`
		renewal     = ", spec: {consumerClusterID: rome, identityType: ControlPlane, publicKey: YQ==, CSR: YQ==}"
	)
	object := func(kind, name, rest string) client.Object {
		return h.tenantObject("{apiVersion: " + kind + ", metadata: {name: " + name + ", " + labels + ", " + annotations + "}" + rest + "}")
	}
	return []client.Object{
		object("offloading.liqo.io/v1beta1, kind: NamespaceMap", "home", ", spec: {desiredMapping: {shop: shop-rome}}"),
		object("coordination.k8s.io/v1, kind: Lease", "refract-heartbeat", ", spec: {leaseDurationSeconds: 120}"),
		object("authentication.liqo.io/v1beta1, kind: Renew", "refract-consumer", renewal),
		object("networking.liqo.io/v1beta1, kind: Configuration", "rome", ""),
		object("networking.liqo.io/v1beta1, kind: PublicKey", "rome", ""),
		object("authentication.liqo.io/v1beta1, kind: ResourceSlice", "mine", ""),
	}
}

// TestEveryKindOfConsumersIsTried checks that the tests of labels and annotations try each kind that a role of package
// rbac lets a consumer write, and no other. Peering users are tested in TestPeeringUsersDecideNothing.
func TestEveryKindOfConsumersIsTried(t *testing.T) {
	tried := map[schema.GroupResource]bool{}
	for _, object := range append(kindsOfConsumers(remoteNamespace), kindsInTenantNamespaces(&held{T: t})...) {
		kind, err := apiutil.GVKForObject(object, scheme(t))
		require.NoError(t, err)
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if kind.Kind == networking.PublicKeyKind {
			resource.Resource = "publickeies" // the plural in Liqo
		}
		tried[resource.GroupResource()] = true
	}
	assert.Equal(t, permissions.KindsOfConsumers(), tried)
}

// TestTrustedMetadataInTenantNamespaces checks that trusted labels and annotations are also denied on the kinds that a
// consumer writes in its tenant namespace. Harmless labels and annotations must be allowed, and so must the keys of the
// peering protocol.
func TestTrustedMetadataInTenantNamespaces(t *testing.T) {
	h := hold(t)
	groups := []string{"authentication.liqo.io", "offloading.liqo.io", "coordination.k8s.io", "networking.liqo.io"}
	h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "as-liqo-has-it"},
		Rules: []rbacv1.PolicyRule{{APIGroups: groups, Resources: []string{"*"}, Verbs: []string{"*"}}}}))
	account := rbac.ServiceAccount(sharedNamespace, wire.ConsumerServiceAccount)
	h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "all"},
		Subjects: []rbacv1.Subject{rbac.User("rome"), rbac.Group("rome"), account},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "as-liqo-has-it"}}))
	liqo := kindsInTenantNamespaces(h)
	of := liqo[:len(liqo)-1] // all but the ResourceSlice
	for name, consumer := range map[string]struct {
		client  client.Client
		objects []client.Object
	}{
		"a certificate of its group":       {h.as("rome-kubelet", "rome"), of},
		"a token":                          {h.as("system:serviceaccount:" + sharedNamespace + ":" + wire.ConsumerServiceAccount), of},
		"Liqo's control-plane certificate": {h.as("rome", "liqo.io"), liqo},
	} {
		for _, object := range consumer.objects {
			label, annotation := object.DeepCopyObject().(client.Object), object.DeepCopyObject().(client.Object)
			label.SetLabels(merged(label.GetLabels(), "grafana_dashboard"))
			annotation.SetAnnotations(merged(annotation.GetAnnotations(), "k8s.v1.cni.cncf.io/networks"))
			h.refused(consumer.client, label, "metadata.labels[grafana_dashboard] is not allowed")
			h.refused(consumer.client, annotation, "metadata.annotations[k8s.v1.cni.cncf.io/networks] is not allowed")
			h.attempt(name+" creates "+object.GetName(), "", func() error {
				return consumer.client.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
			})
		}
	}
}

// merged returns a copy of the map with one more key.
func merged(of map[string]string, key string) map[string]string {
	all := maps.Clone(of)
	all[key] = "true"
	return all
}

// TestMetadataOfOthersStays checks that trusted labels and annotations that other clients have set on a consumer's
// object may stay, and do not block the consumer's changes to the object.
func TestMetadataOfOthersStays(t *testing.T) {
	h := hold(t)
	h.annotate(remoteNamespace, map[string]string{"storage-classes": "fast", "ingress-hosts": "*", "ingress-classes": "*"})
	rome := h.as("rome-kubelet", "rome")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	h.refused(rome, with(service, nil, pairs([]string{"metallb.io/address-pool"})), "metadata.annotations[metallb.io/address-pool]")
	h.must(rome.Create(t.Context(), service.DeepCopy()))
	patch := func(c client.Client, text string, options ...client.PatchOption) error {
		return c.Patch(t.Context(), service.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	h.must(patch(h.admin, `{"metadata":{"annotations":{"metallb.io/address-pool":"of-the-provider"}}}`))
	h.must(patch(rome, `{"metadata":{"annotations":{"note":"mine"}},"spec":{"ports":[{"port":81}]}}`))
	h.attempt("changing what the provider has set", "metadata.annotations[metallb.io/address-pool]", func() error {
		return patch(rome, `{"metadata":{"annotations":{"metallb.io/address-pool":"mine"}}}`, client.DryRunAll)
	})
	stored := service.DeepCopy()
	h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(service), stored))
	require.Equal(t, "of-the-provider", stored.Annotations["metallb.io/address-pool"])

	// The policy must also apply to a Service that is being deleted, because its load balancer can still be configured.
	h.must(patch(h.admin, `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`))
	h.must(rome.Delete(t.Context(), service.DeepCopy()))
	h.attempt("changing a Service that is being deleted", "metadata.annotations[metallb.io/loadBalancerIPs]", func() error {
		return patch(rome, `{"metadata":{"annotations":{"metallb.io/loadBalancerIPs":"192.0.2.1"}}}`, client.DryRunAll)
	})
	h.must(patch(h.admin, `{"metadata":{"finalizers":null}}`))
}

// TestMetadataThatIsAllowed checks that a provider can allow single keys of labels and annotations, for all consumers
// or for one, without repeating the list of denied keys.
func TestMetadataThatIsAllowed(t *testing.T) {
	h := hold(t)
	h.annotate(remoteNamespace, map[string]string{"storage-classes": "fast", "ingress-hosts": "*", "ingress-classes": "*"})
	h.must(h.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"tenants.refract.io/allowed-annotations":"external-dns.alpha.kubernetes.io/*","tenants.refract.io/allowed-labels":"grafana_dashboard","tenants.refract.io/denied-labels":"grafana_*,secret-label"}}}`))))
	rome := h.as("rome-kubelet", "rome")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "web"}}
	allowed := with(object, pairs([]string{"grafana_dashboard", "istio.io/rev"}), pairs([]string{"external-dns.alpha.kubernetes.io/hostname"}))
	h.attempt("keys that are allowed", "", func() error {
		return rome.Create(t.Context(), allowed.DeepCopyObject().(client.Object), client.DryRunAll)
	})
	h.refused(rome, with(object, pairs([]string{"grafana_datasource"}), nil), "metadata.labels[grafana_datasource]")
	h.refused(rome, with(object, pairs([]string{"secret-label"}), nil), "metadata.labels[secret-label]")
	h.refused(rome, with(object, nil, pairs([]string{"karpenter.sh/do-not-disrupt"})), "metadata.annotations[karpenter.sh/do-not-disrupt]")
	turin := h.as("turin-kubelet", "turin")
	h.refused(turin, with(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: joinedNamespace, Name: "web"}}, pairs([]string{"grafana_dashboard"}), nil), "metadata.labels[grafana_dashboard]")
}
