// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"slices"
	"strings"
)

// Settings for the labels and annotations of all objects that a consumer writes.
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

// DeniesLabel reports whether objects of the consumer must not have a label with the given key.
func (l Limits) DeniesLabel(key string) bool {
	return l.Matches(DeniedLabels, key) && !l.Matches(AllowedLabels, key)
}

// DeniesAnnotation reports whether objects of the consumer must not have an annotation with the given key.
func (l Limits) DeniesAnnotation(key string) bool {
	return l.Matches(DeniedAnnotations, key) && !l.Matches(AllowedAnnotations, key)
}

// trustedLabels are labels that components of a cluster act on, no matter who has set them.
var trustedLabels = slices.Concat(
	// Policy engines: exemptions from policies, and copies of objects from other namespaces.
	[]string{"admission.gatekeeper.sh/*", "openpolicyagent.org/*", "generate.kyverno.io/*"},
	// Service meshes: exemption from the mesh, and membership in another network.
	[]string{"ambient.istio.io/*", "istio.io/*", "sidecar.istio.io/*", "topology.istio.io/*", "kuma.io/*", "linkerd.io/*"},
	// Identities of pods at cloud providers.
	[]string{"aadpodidbinding", "azure.workload.identity/*", "eks.amazonaws.com/*"},
	// Configuration that controllers collect from all namespaces, and backups.
	[]string{"argocd.argoproj.io/secret-type", "grafana_*", "admission.datadoghq.com/*", "velero.io/*"},
)

// trustedAnnotations are annotations that components of a cluster act on, no matter who has set them.
var trustedAnnotations = slices.Concat(
	// Kubelets and schedulers: static pods, and scheduling constraints of old versions.
	[]string{"kubernetes.io/config.*", "scheduler.alpha.kubernetes.io/*"},
	// Pod networks: additional interfaces, chosen addresses, gateways, and exemptions from policies.
	[]string{"k8s.v1.cni.cncf.io/*", "v1.multus-cni.io/*", "*.projectcalico.org/*", "cilium.io/*", "*.cilium.io/*", "io.cilium*", "k8s.ovn.org/*", "*.ovn.kubernetes.io/*",
		"ovn.kubernetes.io/*", "vpc.amazonaws.com/*", "networking.gke.io/*"},
	// Container runtimes: hypervisors, hooks, devices and host resources.
	[]string{"io.katacontainers.*", "io.kubernetes.cri*", "*.crio.io*", "*.cri-o.io*", "io.containers.*", "io.containerd.*", "run.oci.*", "dev.gvisor.*", "cdi.k8s.io/*", "*.nri.io*", "*.nri.containerd.io*",
		"*.noderesource.dev*", "*.resource.beta.kubernetes.io/*", "*.resources.beta.kubernetes.io/*", "*.workload.openshift.io/*", "openshift.io/required-scc"},
	// Identities and credentials of pods, and copies of Secrets.
	[]string{"iam.amazonaws.com/*", "eks.amazonaws.com/*", "iam.gke.io/*", "azure.workload.identity/*", "vault.hashicorp.com/*", "secrets-store.csi.x-k8s.io/*",
		"reflector.v1.k8s.emberstack.com/*", "replicator.v1.mittwald.de/*", "kubed.appscode.com/*"},
	// Service meshes and injected sidecars.
	[]string{"ambient.istio.io/*", "inject.istio.io/*", "istio.io/*", "proxy.istio.io/*", "*.sidecar.istio.io/*", "sidecar.istio.io/*", "networking.istio.io/*", "linkerd.io/*", "*.linkerd.io/*", "kuma.io/*",
		"*.kuma.io/*", "consul.hashicorp.com/*", "appmesh.k8s.aws/*", "dapr.io/*", "*.opentelemetry.io/*", "sidecar.jaegertracing.io/*"},
	// Agents that run commands or checks from annotations.
	[]string{"ad.datadoghq.com/*", "admission.datadoghq.com/*", "co.elastic.*"},
	// Autoscalers and deschedulers: pods that must not be evicted, which keep their nodes from being removed, and
	// paused scaling.
	[]string{"cluster-autoscaler.kubernetes.io/*", "karpenter.sh/*", "descheduler.alpha.kubernetes.io/*", "*.keda.sh/*"},
	// Load balancers of cloud providers and of bare-metal clusters.
	[]string{"service.beta.kubernetes.io/*", "service.kubernetes.io/ibm-*", "*.elbv2.k8s.aws/*", "alb.ingress.kubernetes.io/*", "cloud.google.com/*", "ingress.gcp.kubernetes.io/*",
		"kubernetes.io/ingress.*-static-ip-name", "appgw.ingress.kubernetes.io/*", "load-balancer.hetzner.cloud/*", "kubernetes.digitalocean.com/*", "loadbalancer.openstack.org/*", "*.oraclecloud.com/*",
		"metallb.universe.tf/*", "metallb.io/*", "kube-vip.io/*", "purelb.io/*", "*.purelb.io/*"},
	// Ingress controllers: additional hosts, configuration as text, and Secrets or middleware from other namespaces.
	[]string{"*.kubernetes.io/server-alias*", "haproxy-ingress.github.io/server-alias*", "konghq.com/host-aliases", "nginx.ingress.kubernetes.io/*snippet", "nginx.ingress.kubernetes.io/auth-tls-*", "nginx.ingress.kubernetes.io/auth-url", "nginx.ingress.kubernetes.io/auth-signin",
		"nginx.ingress.kubernetes.io/mirror-*", "nginx.ingress.kubernetes.io/proxy-ssl-*", "nginx.org/*snippets", "haproxy.org/*snippet", "haproxy-ingress.github.io/config-*",
		"haproxy-ingress.github.io/auth-tls-*", "ingress.kubernetes.io/config-*", "traefik.ingress.kubernetes.io/router.middlewares", "traefik.ingress.kubernetes.io/service.serverstransport"},
	// DNS names and certificates.
	[]string{"external-dns.alpha.kubernetes.io/*", "dns.alpha.kubernetes.io/*", "acme.cert-manager.io/*", "cert-manager.io/allow-direct-injection", "cert-manager.io/cluster-issuer", "cert-manager.io/issuer",
		"kubernetes.io/tls-acme"},
	// Volumes: the binding of claims, and the node and the class of their volumes.
	[]string{"pv.kubernetes.io/*", "volume.beta.kubernetes.io/*", "volume.kubernetes.io/*"},
	// Policy engines, and backups that run commands.
	[]string{"*.gatekeeper.sh/*", "openpolicyagent.org/*", "generate.kyverno.io/*", "*.stackrox.io/*", "*.velero.io/*", "k8up.io/*"},
)
