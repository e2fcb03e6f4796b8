// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"slices"
	"strings"
)

// The settings of labels and annotations apply to every object that a consumer writes.
var (
	DeniedLabels = &Setting{Name: "denied-labels", Kind: Globs, Default: strings.Join(trustedLabels, ","),
		Help: "keys of labels that objects of consumers must not have"}
	AllowedLabels = &Setting{Name: "allowed-labels", Kind: Globs,
		Help: "keys of labels that objects of consumers may have although they are denied"}
	DeniedAnnotations = &Setting{Name: "denied-annotations", Kind: Globs, Default: strings.Join(trustedAnnotations, ","),
		Help: "keys of annotations that objects of consumers must not have"}
	AllowedAnnotations = &Setting{Name: "allowed-annotations", Kind: Globs,
		Help: "keys of annotations that objects of consumers may have although they are denied"}
)

var metadataSettings = []*Setting{DeniedLabels, AllowedLabels, DeniedAnnotations, AllowedAnnotations}

// DeniesLabel reports whether objects of the consumer must not have a label with that key.
func (l Limits) DeniesLabel(key string) bool {
	return l.Matches(DeniedLabels, key) && !l.Matches(AllowedLabels, key)
}

// DeniesAnnotation reports whether objects of the consumer must not have an annotation with that key.
func (l Limits) DeniesAnnotation(key string) bool {
	return l.Matches(DeniedAnnotations, key) && !l.Matches(AllowedAnnotations, key)
}

// trustedLabels are labels that components of clusters obey regardless of the client that has set them.
var trustedLabels = slices.Concat(
	// Policy engines: exemptions, and clones of other namespaces.
	[]string{"admission.gatekeeper.sh/*", "openpolicyagent.org/*", "generate.kyverno.io/*"},
	// Meshes: exemption from the mesh, and membership in another network.
	[]string{"ambient.istio.io/*", "istio.io/*", "sidecar.istio.io/*", "topology.istio.io/*", "kuma.io/*", "linkerd.io/*"},
	// Identities of cloud providers.
	[]string{"aadpodidbinding", "azure.workload.identity/*", "eks.amazonaws.com/*"},
	// Configuration that controllers collect from all namespaces, and backups.
	[]string{"argocd.argoproj.io/secret-type", "grafana_*", "admission.datadoghq.com/*", "velero.io/*"},
)

// trustedAnnotations are annotations that components of clusters obey regardless of the client that has set them.
var trustedAnnotations = slices.Concat(
	// Kubelets and schedulers: static pods, and constraints of old versions.
	[]string{"kubernetes.io/config.*", "scheduler.alpha.kubernetes.io/*"},
	// Networks of pods: further interfaces, chosen addresses, gateways, exemptions.
	[]string{"k8s.v1.cni.cncf.io/*", "v1.multus-cni.io/*", "*.projectcalico.org/*", "cilium.io/*", "*.cilium.io/*", "io.cilium*", "k8s.ovn.org/*", "*.ovn.kubernetes.io/*",
		"ovn.kubernetes.io/*", "vpc.amazonaws.com/*", "networking.gke.io/*"},
	// Container runtimes: hypervisors, hooks, devices, host resources.
	[]string{"io.katacontainers.*", "io.kubernetes.cri*", "*.crio.io*", "*.cri-o.io*", "io.containers.*", "io.containerd.*", "run.oci.*", "dev.gvisor.*", "cdi.k8s.io/*", "*.nri.io*", "*.nri.containerd.io*",
		"*.noderesource.dev*", "*.resource.beta.kubernetes.io/*", "*.resources.beta.kubernetes.io/*", "*.workload.openshift.io/*", "openshift.io/required-scc"},
	// Identities, credentials and copies of Secrets.
	[]string{"iam.amazonaws.com/*", "eks.amazonaws.com/*", "iam.gke.io/*", "azure.workload.identity/*", "vault.hashicorp.com/*", "secrets-store.csi.x-k8s.io/*",
		"reflector.v1.k8s.emberstack.com/*", "replicator.v1.mittwald.de/*", "kubed.appscode.com/*"},
	// Meshes and injected sidecars.
	[]string{"ambient.istio.io/*", "inject.istio.io/*", "istio.io/*", "proxy.istio.io/*", "*.sidecar.istio.io/*", "sidecar.istio.io/*", "networking.istio.io/*", "linkerd.io/*", "*.linkerd.io/*", "kuma.io/*",
		"*.kuma.io/*", "consul.hashicorp.com/*", "appmesh.k8s.aws/*", "dapr.io/*", "*.opentelemetry.io/*", "sidecar.jaegertracing.io/*"},
	// Agents that run what annotations configure.
	[]string{"ad.datadoghq.com/*", "admission.datadoghq.com/*", "co.elastic.*"},
	// Autoscalers and deschedulers: nodes that are never removed.
	[]string{"cluster-autoscaler.kubernetes.io/*", "karpenter.sh/*", "descheduler.alpha.kubernetes.io/*", "*.keda.sh/*"},
	// Load balancers of clouds and of bare metal.
	[]string{"service.beta.kubernetes.io/*", "service.kubernetes.io/ibm-*", "*.elbv2.k8s.aws/*", "alb.ingress.kubernetes.io/*", "cloud.google.com/*", "ingress.gcp.kubernetes.io/*",
		"kubernetes.io/ingress.*-static-ip-name", "appgw.ingress.kubernetes.io/*", "load-balancer.hetzner.cloud/*", "kubernetes.digitalocean.com/*", "loadbalancer.openstack.org/*", "*.oraclecloud.com/*",
		"metallb.universe.tf/*", "metallb.io/*", "kube-vip.io/*", "purelb.io/*", "*.purelb.io/*"},
	// Ingress controllers: further hosts, configuration as text, and Secrets or middleware of other namespaces.
	[]string{"*.kubernetes.io/server-alias*", "haproxy-ingress.github.io/server-alias*", "konghq.com/host-aliases", "nginx.ingress.kubernetes.io/*snippet", "nginx.ingress.kubernetes.io/auth-tls-*", "nginx.ingress.kubernetes.io/auth-url", "nginx.ingress.kubernetes.io/auth-signin",
		"nginx.ingress.kubernetes.io/mirror-*", "nginx.ingress.kubernetes.io/proxy-ssl-*", "nginx.org/*snippets", "haproxy.org/*snippet", "haproxy-ingress.github.io/config-*",
		"haproxy-ingress.github.io/auth-tls-*", "ingress.kubernetes.io/config-*", "traefik.ingress.kubernetes.io/router.middlewares", "traefik.ingress.kubernetes.io/service.serverstransport"},
	// Names and certificates.
	[]string{"external-dns.alpha.kubernetes.io/*", "dns.alpha.kubernetes.io/*", "acme.cert-manager.io/*", "cert-manager.io/allow-direct-injection", "cert-manager.io/cluster-issuer", "cert-manager.io/issuer",
		"kubernetes.io/tls-acme"},
	// Volumes: the binding of claims, the node and the class of their volumes.
	[]string{"pv.kubernetes.io/*", "volume.beta.kubernetes.io/*", "volume.kubernetes.io/*"},
	// Policy engines, and backups that run commands.
	[]string{"*.gatekeeper.sh/*", "openpolicyagent.org/*", "generate.kyverno.io/*", "*.stackrox.io/*", "*.velero.io/*", "k8up.io/*"},
)
