// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import "strings"

// Settings for namespaces.
var (
	MaxNamespaces = &Setting{Name: "max-namespaces", Kind: Number, Default: "100",
		Help: "maximum number of namespaces of one consumer, including those being deleted; 0 is unlimited, too"}
	NamespaceNames = &Setting{Name: "namespace-names", Kind: Globs, Default: "*",
		Help: "names that namespaces of consumers may have, in addition to those that end with a dash and the id of the consumer"}
	ReservedNamespaces = &Setting{Name: "reserved-namespaces", Kind: Globs, Default: strings.Join(addOnNamespaces, ","),
		Help: "names that namespaces of consumers must not have, unless they end with a dash and the id of the consumer: those of add-ons that this cluster may install later"}
)

var namespaceSettings = []*Setting{MaxNamespaces, NamespaceNames, ReservedNamespaces}

// addOnNamespaces are the usual namespaces of cluster add-ons. If a consumer had a namespace with such a name, and the
// add-on were installed later, the consumer would have permissions in the add-on's namespace.
var addOnNamespaces = []string{
	"*-system", "*-operator", "*-operators", "addons", "ambassador", "amazon-*", "argo", "argo-*", "argocd", "aws-*", "azure-*", "backstage", "calico-*", "capi-*",
	"cattle-*", "cdi", "cert-manager", "cert-manager-*", "chaos-mesh", "cilium", "cilium-*", "cis-*", "cnpg-*", "config-management-*", "consul", "crossplane", "crossplane-*",
	"datadog", "dex", "elastic-*", "emissary", "external-dns", "external-secrets", "falco", "falco-*", "fleet-*", "flux", "flux-*", "fluentbit", "fluentd", "gatekeeper-*",
	"gitlab-*", "gke-*", "gmp-*", "gpu-*", "grafana", "grafana-*", "harbor", "ingress", "ingress-*", "istio", "istio-*", "jaeger", "karmada-*", "karpenter", "keda",
	"keycloak", "kiali-*", "knative-*", "kong", "kourier-*", "kubeflow", "kubernetes-*", "kubevirt", "kyverno", "kyverno-*", "linkerd", "linkerd-*", "logging", "loki",
	"longhorn-*", "metallb", "metallb-*", "minio", "monitoring", "nginx-*", "nvidia-*", "oam-*", "observability", "olm", "opa", "open-cluster-*", "opentelemetry*", "operators",
	"projectcontour", "prometheus", "prometheus-*", "rancher-*", "reloader", "rook-*", "sealed-secrets", "security", "sonobuoy", "spire*", "stackgres", "submariner-*",
	"tekton-*", "teleport", "tempo", "tigera-*", "traefik", "traefik-*", "trident", "trivy-*", "vault", "vault-*", "velero", "vmware-*", "webhook", "zalando-*",
}
