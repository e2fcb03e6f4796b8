// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/ipmap"
)

// Kind is the form of a setting's value.
type Kind string

const (
	// Globs is a list of names, separated by commas, in which * stands for any number of characters. Empty matches nothing.
	Globs Kind = "globs"
	// Names is a list of names, separated by commas, without wildcards. Empty matches nothing.
	Names Kind = "names"
	// Number is a number, 0 or more, or Unlimited.
	Number Kind = "number"
	// Quantity is a quantity of Kubernetes, such as 10Gi, or Unlimited.
	Quantity Kind = "quantity"
	// Switch is true or false.
	Switch Kind = "switch"
	// CIDRs is a list of address ranges, separated by commas. Empty contains nothing.
	CIDRs Kind = "cidrs"
)

// Unlimited is the value of a Number or Quantity that limits nothing.
const Unlimited = "unlimited"

// Setting is one limit.
type Setting struct {
	// Name is part of the flag, of the annotation and of the argument of refractctl; in camel case it is the chart value.
	Name string
	Kind Kind
	// Default is the value in the form of the flag.
	Default string
	// Help is the help of the flag, without the default.
	Help string
}

// The settings, by what they limit.
var (
	SchedulerNames = &Setting{Name: "scheduler-names", Kind: Globs, Default: "default-scheduler",
		Help: "schedulers that the pods of consumers may name"}
	MaxNamespaces = &Setting{Name: "max-namespaces", Kind: Number, Default: "100",
		Help: "maximum number of namespaces of one consumer, including those being deleted; 0 is unlimited, too"}
	NamespaceNames = &Setting{Name: "namespace-names", Kind: Globs, Default: "*",
		Help: "names that namespaces of consumers may have, in addition to those that end with a dash and the id of the consumer"}
	ReservedNamespaces = &Setting{Name: "reserved-namespaces", Kind: Globs, Default: strings.Join(addOnNamespaces, ","),
		Help: "names that namespaces of consumers must not have, unless they end with a dash and the id of the consumer: those of add-ons that this cluster may install later"}
	EndpointCIDRs = &Setting{Name: "endpoint-cidrs", Kind: CIDRs, Default: "0.0.0.0/0,::/0",
		Help: "CIDRs of the endpoints of a consumer; ranges of this cluster and reserved addresses are never allowed. --tenant-cidrs-of overrides them for one consumer"}
	FQDNEndpoints = &Setting{Name: "fqdn-endpoints", Kind: Switch, Default: "false",
		Help: "allow EndpointSlices of consumers with host names (address type FQDN), which no check can hold to the ranges of the consumer"}
	EgressPolicy = &Setting{Name: "egress-policy", Kind: Switch, Default: "true",
		Help: "create a NetworkPolicy in the namespaces of consumers that keeps their pods from this cluster's own pods, Services, nodes and metadata services"}
	EgressCIDRs = &Setting{Name: "egress-cidrs", Kind: CIDRs, Default: "",
		Help: "CIDRs of this cluster that the NetworkPolicy lets the pods of consumers reach nevertheless"}

	VolumeTypes = &Setting{Name: "volume-types", Kind: Globs, Default: "configMap,downwardAPI,emptyDir,ephemeral,image,persistentVolumeClaim,projected,secret",
		Help: "types of volumes that the pods of consumers may have, as the fields of a volume are named"}
	StorageClasses = &Setting{Name: "storage-classes", Kind: Names,
		Help: "storage classes that the claims of consumers may have; a listed class also opens the unclaimed PersistentVolumes that have it"}
	MaxClaimSize = &Setting{Name: "max-claim-size", Kind: Quantity, Default: "1Ti",
		Help: "maximum size of a claim of a consumer, as a quantity, or unlimited"}
	VolumeAttributesClasses = &Setting{Name: "volume-attributes-classes", Kind: Globs,
		Help: "volume attributes classes that the claims of consumers may name"}
	ClaimDataSources = &Setting{Name: "claim-data-sources", Kind: Switch, Default: "false",
		Help: "whether claims of consumers may name a data source of their own namespace"}

	ExternalNames = &Setting{Name: "external-names", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may be of type ExternalName"}
	ChosenNodePorts = &Setting{Name: "chosen-node-ports", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may choose their node ports"}
	ChosenAddresses = &Setting{Name: "chosen-addresses", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may choose their cluster IPs and load balancer IPs"}
	LoadBalancerClasses = &Setting{Name: "load-balancer-classes", Kind: Globs,
		Help: "load balancer classes that Services of consumers may name"}
	IngressClasses = &Setting{Name: "ingress-classes", Kind: Globs,
		Help: "ingress classes that Ingresses of consumers may name"}
	IngressHosts = &Setting{Name: "ingress-hosts", Kind: Globs,
		Help: "hosts of Ingresses of consumers; only * allows Ingresses without a host, and default backends"}
)

// addOnNamespaces are the namespaces into which add-ons of clusters are usually installed. A consumer that got one of these names would have
// rights in the namespace when the add-on is installed into it.
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

// all lists the settings in the order of the documentation.
var all = []*Setting{
	SchedulerNames, MaxNamespaces, NamespaceNames, ReservedNamespaces, EndpointCIDRs, FQDNEndpoints, EgressPolicy, EgressCIDRs,
	VolumeTypes, StorageClasses, MaxClaimSize, VolumeAttributesClasses, ClaimDataSources,
	ExternalNames, ChosenNodePorts, ChosenAddresses, LoadBalancerClasses, IngressClasses, IngressHosts,
}

// Settings returns all settings, in the order of the documentation.
func Settings() []*Setting { return slices.Clone(all) }

// Lookup returns the setting of that name, or an error with the names that exist.
func Lookup(name string) (*Setting, error) {
	for _, setting := range all {
		if setting.Name == name {
			return setting, nil
		}
	}
	names := make([]string, len(all))
	for i, setting := range all {
		names[i] = setting.Name
	}
	return nil, fmt.Errorf("there is no limit %q: use one of %s", name, strings.Join(names, ", "))
}

// Value returns the name of the chart value, below tenants.
func (s *Setting) Value() string {
	words := strings.Split(s.Name, "-")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// Flag returns the name of the controller manager's flag, without dashes.
func (s *Setting) Flag() string { return "tenant-" + s.Name }

// Annotation returns the key of the annotation that sets the limit for one consumer.
func (s *Setting) Annotation() string { return AnnotationPrefix + s.Name }

// globChars are those of names and keys of Kubernetes, and the asterisk. The admission policies compile entries to regular
// expressions, so nothing else with a meaning there is allowed.
var globChars = regexp.MustCompile(`^[A-Za-z0-9*._/:-]+$`)

// Check returns an error with the remedy if the text is not a value of the setting.
func (s *Setting) Check(text string) error {
	switch s.Kind {
	case Number:
		if number, err := strconv.ParseInt(text, 10, 64); text != Unlimited && (err != nil || number < 0) {
			return fmt.Errorf("%s is %q: use a number, 0 or more, or %s", s.Name, text, Unlimited)
		}
	case Switch:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is %q: use true or false", s.Name, text)
		}
	case CIDRs:
		if _, err := parseCIDRs(text); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	case Quantity:
		if quantity, err := resource.ParseQuantity(text); text != Unlimited && (err != nil || quantity.Sign() < 0) {
			return fmt.Errorf("%s is %q: use a quantity, such as 10Gi, or %s", s.Name, text, Unlimited)
		}
	case Names:
		for _, entry := range entries(text) {
			if !globChars.MatchString(entry) || strings.Contains(entry, "*") {
				return fmt.Errorf("%s: entry %q is not valid: use names separated by commas, without spaces and wildcards", s.Name, strings.Map(printable, entry))
			}
		}
	case Globs:
		for _, entry := range entries(text) {
			if !globChars.MatchString(entry) {
				return fmt.Errorf("%s: entry %q is not valid: use names separated by commas, without spaces, in which * stands for any characters", s.Name, strings.Map(printable, entry))
			}
		}
	}
	return nil
}

func parseCIDRs(text string) (ipmap.Ranges, error) {
	var ranges ipmap.Ranges
	for _, entry := range entries(text) {
		prefix, err := netip.ParsePrefix(entry)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range: use CIDR notation, such as 10.1.0.0/16", strings.Map(printable, entry))
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
