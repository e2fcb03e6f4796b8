// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func TestMain(m *testing.M) { reflectiontest.Main(m, stopShared) }

// TestDenialsReachTheUser checks that if the policies of a provider deny an object, an Event names the field and, if
// the administrator of the provider can allow it, how this is done. It also checks that other objects are still
// reflected.
func TestDenialsReachTheUser(t *testing.T) {
	l := reflectiontest.New(t, reflectiontest.WithDefaultPlugins(t))
	l.Options.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.EndpointSliceKind, reflection.ConfigMapKind, reflection.IngressKind, reflection.SecretKind,
		reflection.NetworkPolicyKind, reflection.DisruptionBudgetKind)
	config, err := l.Remote.Cluster.ConfigFor("rome-"+l.Node, "rome")
	require.NoError(t, err)
	l.Options.Remote = config
	provider, err := client.New(l.Remote.Cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	h := &held{t, l.Remote.Cluster, provider}
	h.must(provider.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.RemoteNS}}, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"rome"},"annotations":{%q:"liqo-tenant-rome/milan"}}}`, wire.RemoteClusterIDLabel, wire.ManagedByNamespaceMapAnnotation))))
	for _, object := range objects(t, values(t, "provider")) {
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			if strings.HasPrefix(object.GetName(), releaseName+"-tenant-") || strings.HasPrefix(object.GetName(), releaseName+"-consumer-") || object.GetName() == releaseName+"-shadowpods" {
				h.must(provider.Create(t.Context(), object))
			}
		}
	}
	h.attempt("a pod on the control plane", "spec.pod.nodeSelector", func() error {
		return provider.Create(t.Context(), shadowOf(l.RemoteNS, parse(t, `{nodeSelector: {node-role.kubernetes.io/control-plane: ""}}`, l.RemoteNS)), client.DryRunAll)
	})
	h.attempt("a denied label", "metadata.labels[grafana_dashboard]", func() error {
		return h.as("rome-"+l.Node, "rome").Create(t.Context(), with(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.RemoteNS, Name: "web"}}, pairs([]string{"grafana_dashboard"}), nil), client.DryRunAll)
	})
	l.Start()

	pod := func(name, metadata, spec string) {
		l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]%s}}`, name, metadata, l.Node, spec))
	}
	const remedy = "refractctl peer --tenant-limit"
	pod("everywhere", "", `, tolerations: [{key: dedicated, operator: Exists}]`)
	l.Event(l.Namespace, "Pod", "everywhere", "Warning", "spec.pod.tolerations", "taint dedicated", "tenants.tolerations", remedy)
	pod("attached", `, annotations: {k8s.v1.cni.cncf.io/networks: kube-system/storage}`, "")
	l.Event(l.Namespace, "Pod", "attached", "Warning", "metadata.annotations[k8s.v1.cni.cncf.io/networks]", "offloading.reflection.skip", remedy)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: board, labels: {grafana_dashboard: "1"}}}`)
	l.Event(l.Namespace, "ConfigMap", "board", "Warning", "metadata.labels[grafana_dashboard]", "offloading.reflection.skip", remedy)

	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: outside}, spec: {type: ExternalName, externalName: kubernetes.default.svc}}`)
	l.Event(l.Namespace, "Service", "outside", "Warning", "spec.type ExternalName", "tenants.externalNames", remedy)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: bootstrap}, type: bootstrap.kubernetes.io/token}`)
	l.Event(l.Namespace, "Secret", "bootstrap", "Warning", "bootstrap.kubernetes.io/token")
	l.Local.Create(t, l.Namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {rules: [{host: shop.rome.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}`)
	l.Event(l.Namespace, "Ingress", "web", "Warning", "spec.rules[].host", "tenants.ingressHosts", remedy)
	pod("claiming", "", `, volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`)
	l.Event(l.Namespace, "Pod", "claiming", "Warning", "volumeClaimTemplate.spec.storageClassName", "tenants.storageClasses", remedy)
	for kind, object := range map[string]string{
		"EndpointSlice":       `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: board, labels: {grafana_dashboard: "1"}}, addressType: IPv4, endpoints: [{addresses: [10.1.2.3]}]}`,
		"NetworkPolicy":       `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: board, labels: {grafana_dashboard: "1"}}, spec: {podSelector: {}}}`,
		"PodDisruptionBudget": `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: board, labels: {grafana_dashboard: "1"}}, spec: {maxUnavailable: 1, selector: {}}}`,
	} {
		l.Local.Create(t, l.Namespace, object)
		l.Event(l.Namespace, kind, "board", "Warning", "metadata.labels[grafana_dashboard]", "offloading.reflection.skip", remedy)
	}
	h.annotate(l.RemoteNS, map[string]string{"ingress-hosts": "*.rome.example.com"})
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")

	// Ordinary objects are reflected, with the tolerations that Kubernetes adds.
	pod("usual", `, labels: {app: web}, annotations: {prometheus.io/scrape: "true"}`, "")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "usual", reflectiontest.Field("metadata.annotations/prometheus.io/scrape", "true"))
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}], selector: {app: web}}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web")

	// The policies deny this change.
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: console.milan.example.com}}}`)
	l.Event(l.Namespace, "Service", "web", "Warning", "metadata.annotations[external-dns.alpha.kubernetes.io/hostname]", remedy)
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "everywhere")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "attached")
	l.Absent(l.Remote, "ConfigMap", l.RemoteNS, "board")
}
